/* Load through librdkafka, so that the client costs as little as a real client can.
 *
 *   rdload produce BOOTSTRAP TOPIC SIZE COUNT ACKS      records of SIZE bytes, as fast as they go
 *   rdload consume BOOTSTRAP TOPIC COUNT                partition 0, timed behind the first batch
 *   rdload latency BOOTSTRAP TOPIC COUNT RATE ACKS      paced; from produce() to the consumer's hands,
 *                                                       and the records per second that arrived
 *
 * ACKS "idempotent" is enable.idempotence, which implies acks=all.
 * Prints one line of JSON. Exit code 1 when something was refused or too slow to come.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_MS 30000
#define BATCH 10000

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) die(key, error);
}

static rd_kafka_t *make(rd_kafka_type_t type, rd_kafka_conf_t *conf, const char *bootstrap) {
    char error[512];
    set(conf, "bootstrap.servers", bootstrap);
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) die("rd_kafka_new", error);
    return rk;
}

static long delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) die("delivery", rd_kafka_err2str(message->err));
    delivered++;
}

static rd_kafka_t *producer(const char *bootstrap, const char *acks, const char *linger) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (strcmp(acks, "idempotent")) set(conf, "acks", acks);
    else set(conf, "enable.idempotence", "true");
    set(conf, "linger.ms", linger);
    set(conf, "queue.buffering.max.messages", "1000000");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    return make(RD_KAFKA_PRODUCER, conf, bootstrap);
}

static void send_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, void *data, size_t size, int flags) {
    while (rd_kafka_produce(topic, 0, flags, data, size, NULL, 0, NULL) == -1) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(rk, 10);
    }
}

static void produce(char **a) {
    size_t size = strtoul(a[2], NULL, 10);
    long count = atol(a[3]);
    rd_kafka_t *rk = producer(a[0], a[4], "5");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    char *data = malloc(size);
    for (size_t i = 0; i < size; i++) data[i] = (char)(i * 7919 % 251);
    const struct rd_kafka_metadata *metadata; /* connected before the clock runs */
    if (rd_kafka_metadata(rk, 0, topic, &metadata, WAIT_MS)) die("metadata", a[1]);
    rd_kafka_metadata_destroy(metadata);
    int64_t began = now_ns();
    for (long i = 0; i < count; i++) {
        send_one(rk, topic, data, size, 0);
        if (i % 1000 == 0) rd_kafka_poll(rk, 0);
    }
    while (delivered < count && now_ns() - began < (int64_t)300 * 1000000000) rd_kafka_poll(rk, 100);
    if (delivered < count) die("produce", "not all were acknowledged");
    printf("{\"seconds\": %.6f, \"bytes\": %ld}\n", (now_ns() - began) / 1e9, (long)size * count);
}

static rd_kafka_queue_t *reader(const char *bootstrap, const char *name, int64_t offset, rd_kafka_t **rk) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "queued.min.messages", "1000000");
    set(conf, "fetch.message.max.bytes", "10485760");
    *rk = make(RD_KAFKA_CONSUMER, conf, bootstrap);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(*rk, name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(*rk);
    if (rd_kafka_consume_start_queue(topic, 0, offset, queue)) die("consume", name);
    return queue;
}

static void consume(char **a) {
    long count = atol(a[2]), got = 0, bytes = 0;
    rd_kafka_t *rk;
    static rd_kafka_message_t *messages[BATCH];
    int64_t began = 0; /* connecting is not reading: the clock runs from the first batch on */
    rd_kafka_queue_t *queue = reader(a[0], a[1], RD_KAFKA_OFFSET_BEGINNING, &rk);
    while (got < count) {
        long left = count - got; /* the call returns only with as many as it asks for, or after WAIT_MS */
        ssize_t n = rd_kafka_consume_batch_queue(queue, WAIT_MS, messages, left < BATCH ? left : BATCH);
        if (n <= 0) die("consume", "nothing came");
        for (ssize_t i = 0; i < n; i++) {
            if (!messages[i]->err) got++, bytes += messages[i]->len;
            else if (messages[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) die("consume", rd_kafka_err2str(messages[i]->err));
            rd_kafka_message_destroy(messages[i]);
        }
        if (!began) began = now_ns(), bytes = 0;
    }
    printf("{\"seconds\": %.6f, \"bytes\": %ld}\n", (now_ns() - began) / 1e9, bytes);
}

struct pace { const char *bootstrap, *topic, *acks; long count, rate; };

static void *send_paced(void *arg) {
    struct pace *pace = arg;
    rd_kafka_t *rk = producer(pace->bootstrap, pace->acks, "0");
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, pace->topic, NULL);
    char first = 0; /* connected before the clock runs; the reader ignores a record of this size */
    send_one(rk, topic, &first, sizeof first, RD_KAFKA_MSG_F_COPY);
    if (rd_kafka_flush(rk, WAIT_MS)) die("latency", "the first record was not acknowledged");
    int64_t began = now_ns(), step = 1000000000 / pace->rate;
    for (long i = 0; i < pace->count; i++) {
        int64_t due = began + i * step, left = due - now_ns();
        if (left > 0) {
            struct timespec t = {left / 1000000000, left % 1000000000};
            nanosleep(&t, NULL);
        }
        int64_t stamp = now_ns();
        send_one(rk, topic, &stamp, sizeof stamp, RD_KAFKA_MSG_F_COPY);
        rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, WAIT_MS);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void latency(char **a) {
    struct pace pace = {a[0], a[1], a[4], atol(a[2]), atol(a[3])};
    int64_t *taken = malloc(pace.count * sizeof *taken);
    long got = 0, skipped = pace.count / 10; /* connecting and warming up do not count */
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue = reader(a[0], a[1], RD_KAFKA_OFFSET_END, &rk);
    struct timespec settle = {1, 0}; /* the end is where it was before the first record */
    nanosleep(&settle, NULL);
    pthread_t thread;
    int64_t counted = 0, last = 0; /* when the first record that counts was sent, and the last one arrived */
    pthread_create(&thread, NULL, send_paced, &pace);
    while (got < pace.count) {
        rd_kafka_message_t *message;
        if (rd_kafka_consume_batch_queue(queue, WAIT_MS, &message, 1) != 1) die("latency", "nothing came");
        if (!message->err && message->len == sizeof(int64_t)) {
            int64_t stamp;
            memcpy(&stamp, message->payload, sizeof stamp);
            last = now_ns();
            if (got == skipped) counted = stamp;
            taken[got++] = last - stamp;
        }
        rd_kafka_message_destroy(message);
    }
    pthread_join(thread, NULL);
    int64_t *kept = taken + skipped;
    long n = pace.count - skipped;
    qsort(kept, n, sizeof *kept, by_value);
    printf("{\"p50\": %.6f, \"p99\": %.6f, \"p999\": %.6f, \"rate\": %.1f}\n", kept[n / 2] / 1e9,
           kept[n * 99 / 100] / 1e9, kept[n * 999 / 1000] / 1e9, n > 1 ? (n - 1) * 1e9 / (last - counted) : 0.0);
}

int main(int argc, char **argv) {
    if (argc == 7 && !strcmp(argv[1], "produce")) produce(argv + 2);
    else if (argc == 5 && !strcmp(argv[1], "consume")) consume(argv + 2);
    else if (argc == 7 && !strcmp(argv[1], "latency")) latency(argv + 2);
    else die("rdload", "see the head of rdload.c");
    fflush(stdout);
    _Exit(0); /* nothing left to say to the broker */
}
