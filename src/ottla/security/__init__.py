"""Authentication and authorization: TLS, SASL, principals, ACLs, delegation tokens.

The rules are pure: ACL decisions (`acl_index`), principal mapping (`principal`), JAAS parsing
(`jaas`) and each SASL mechanism (`sasl`) take values and return values. `tls` builds contexts from
key stores. Nothing here opens a listener or reads the metadata image: `server` drives the exchange
on a connection, and `node` hands in credentials and ACLs of the image.

Start reading at `authorizer` for "may this principal do that", at `sasl/exchange` for a login.
"""
