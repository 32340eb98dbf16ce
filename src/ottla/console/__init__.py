"""The console: pages and a JSON API to look into a cluster, and the same API for assistants.

It is a Kafka client of the cluster, with the credentials of the user who has logged in, so the
brokers' ACLs decide what it shows (docs/adr/0136). `ottla server` runs it beside the node where
``console.listeners`` is set, and `ottla console` beside any cluster.

Start reading at `endpoints.py` (what a handler gets and returns), then `routes.py` (the table of
all paths) and `app.py` (from a request to a reply). Pure rules: `guards.py` (hosts, cross-site
requests, headers), `segments.py` (names in paths), `record_views.py` and `search_rules.py`.

Not here: rules that the command line shares (`operations`), and single requests (`client`).
"""
