"""SASL mechanisms, without I/O: each is a state machine of tokens in and tokens out.

`exchange` says what a mechanism is to the server, `session` is the conversation on a connection
(SaslHandshake, SaslAuthenticate, re-authentication); the other modules are one mechanism each,
server and client side by side.
"""
