"""The APIs of transactions and producer ids: begin, add, commit, mark, verify and describe."""
