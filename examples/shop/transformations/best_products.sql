-- What is bought most by people who looked at something just before.
CREATE MATERIALIZED VIEW best_products AS
SELECT product, count(DISTINCT id) AS orders, round(sum(amount), 2) AS revenue
FROM orders_after_clicks
GROUP BY product
