-- The best-selling products among users who clicked within five minutes before the order.
CREATE MATERIALIZED VIEW best_products AS
SELECT product, count(DISTINCT id) AS orders, round(sum(amount), 2) AS revenue
FROM orders_after_clicks
GROUP BY product
