/* The least that a broker of librdkafka's clients has to do, for one partition:
 * append a batch to a file, hand it to the consumer that waits, and acknowledge it.
 *
 *   bare_broker FILE PORT        serves until it is ended
 *
 * It trusts its clients, checks no CRC and keeps what it needs in memory. What a client measures
 * with it is the time of the client and of the machine: no broker on it can be much faster.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX (1 << 21)
#define LOG_MAX (64L << 20)
#define BATCHES_MAX 1000000
#define FETCH_MAX (1 << 20)

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18 };
/* One version of each, the oldest that librdkafka uses with batches of format 2. */
static const int16_t served[][2] = {{PRODUCE, 3}, {FETCH, 4}, {LIST_OFFSETS, 1}, {METADATA, 4}};

struct connection {
    int fd;
    size_t have;
    int is_waiting; /* its fetch waits for the next batch */
    uint32_t correlation;
    size_t topic_size;
    unsigned char topic[256]; /* length and name, as they came */
    unsigned char frame[FRAME_MAX];
};

static struct connection *connections[64];
static unsigned char *log_bytes, reply[FETCH_MAX + 4096];
static int64_t first_offset[BATCHES_MAX + 1], next_offset;
static long position[BATCHES_MAX + 1], batches;
static size_t filled;
static int file, port;

static void put(const void *data, size_t size) {
    memcpy(reply + filled, data, size);
    filled += size;
}
static void put8(uint8_t value) { put(&value, 1); }
static void put16(uint16_t value) { value = htobe16(value), put(&value, 2); }
static void put32(uint32_t value) { value = htobe32(value), put(&value, 4); }
static void put64(uint64_t value) { value = htobe64(value), put(&value, 8); }
static void put_text(const char *text) { put16(strlen(text)), put(text, strlen(text)); }

static uint16_t get16(const unsigned char *at) { uint16_t v; memcpy(&v, at, 2); return be16toh(v); }
static uint32_t get32(const unsigned char *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
static uint64_t get64(const unsigned char *at) { uint64_t v; memcpy(&v, at, 8); return be64toh(v); }

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void begin(uint32_t correlation) {
    filled = 4;
    put32(correlation);
}

static void finish(struct connection *c) {
    uint32_t size = htobe32(filled - 4);
    memcpy(reply, &size, 4);
    if (send(c->fd, reply, filled, MSG_NOSIGNAL) != (ssize_t)filled) die("send");
}

static void answer_versions(struct connection *c, int version) {
    int count = sizeof served / sizeof *served + 1;
    begin(c->correlation);
    put16(0);
    if (version >= 3) put8(count + 1);
    else put32(count);
    for (int i = 0; i < count; i++) {
        int is_last = i == count - 1;
        put16(is_last ? API_VERSIONS : served[i][0]);
        put16(is_last ? 0 : served[i][1]);
        put16(is_last ? 3 : served[i][1]);
        if (version >= 3) put8(0);
    }
    if (version >= 1) put32(0);
    if (version >= 3) put8(0);
    finish(c);
}

static void answer_metadata(struct connection *c, const unsigned char *body) {
    int32_t count = get32(body);
    begin(c->correlation);
    put32(0), put32(1), put32(1), put_text("127.0.0.1"), put32(port), put16(-1); /* one node */
    put_text("bare"), put32(1);
    put32(count < 0 ? 0 : count);
    const unsigned char *at = body + 4;
    for (int i = 0; i < count; i++) {
        size_t size = 2 + get16(at);
        put16(0), put(at, size), put8(0);
        put32(1), put16(0), put32(0), put32(1), put32(1), put32(1), put32(1), put32(1);
        at += size;
    }
    finish(c);
}

static void keep_topic(struct connection *c, const unsigned char *topic) {
    c->topic_size = 2 + get16(topic);
    if (c->topic_size > sizeof c->topic) die("topic");
    memcpy(c->topic, topic, c->topic_size);
}

static void begin_partition(struct connection *c) {
    put32(1), put(c->topic, c->topic_size), put32(1), put32(0), put16(0); /* partition 0, no error */
}

static void answer_fetch(struct connection *c, long from) {
    long to = from;
    while (to < batches && position[to + 1] - position[from] <= FETCH_MAX) to++;
    size_t size = position[to] - position[from];
    begin(c->correlation);
    put32(0), begin_partition(c), put64(next_offset), put64(next_offset), put32(-1);
    put32(size), put(log_bytes + position[from], size);
    c->is_waiting = 0;
    finish(c);
}

static void fetch(struct connection *c, const unsigned char *body) {
    const unsigned char *topic = body + 4 + 4 + 4 + 4 + 1 + 4;
    if (get32(topic - 4) == 0) return; /* nothing is asked for: no reply until something is */
    keep_topic(c, topic);
    int64_t offset = get64(topic + c->topic_size + 4 + 4);
    if (offset >= next_offset) {
        c->is_waiting = 1;
        return;
    }
    long low = 0, high = batches;
    while (high - low > 1) {
        long middle = (low + high) / 2;
        if (first_offset[middle] <= offset) low = middle;
        else high = middle;
    }
    answer_fetch(c, low);
}

static void produce(struct connection *c, const unsigned char *body) {
    const unsigned char *at = body + 2 + 2 + 4 + 4; /* no transactional id, acks, timeout, one topic */
    keep_topic(c, at);
    at += c->topic_size + 4 + 4;
    size_t size = get32(at);
    if (batches == BATCHES_MAX || position[batches] + (long)size > LOG_MAX) die("the log is full");
    unsigned char *batch = log_bytes + position[batches];
    memcpy(batch, at + 4, size);
    uint64_t base = htobe64(next_offset);
    memcpy(batch, &base, 8);
    if (pwrite(file, batch, size, position[batches]) != (ssize_t)size) die("pwrite");
    int64_t first = next_offset;
    first_offset[batches] = first;
    next_offset += get32(batch + 23) + 1;
    position[batches + 1] = position[batches] + size;
    batches++;
    for (int i = 0; i < 64; i++)
        if (connections[i] && connections[i]->is_waiting) answer_fetch(connections[i], batches - 1);
    begin(c->correlation);
    begin_partition(c), put64(first), put64(-1), put32(0);
    finish(c);
}

static void serve(struct connection *c) {
    const unsigned char *head = c->frame + 4;
    int key = get16(head), version = get16(head + 2);
    int16_t client = get16(head + 8);
    const unsigned char *body = head + 10 + (client > 0 ? client : 0);
    c->correlation = get32(head + 4);
    if (key == API_VERSIONS) answer_versions(c, version);
    else if (key == METADATA) answer_metadata(c, body);
    else if (key == PRODUCE) produce(c, body);
    else if (key == FETCH) fetch(c, body);
    else if (key == LIST_OFFSETS) {
        keep_topic(c, body + 8);
        begin(c->correlation);
        begin_partition(c), put64(-1), put64(next_offset);
        finish(c);
    } else fprintf(stderr, "api %d v%d\n", key, version);
}

static void accept_one(int door, int poll) {
    int one = 1, slot = 0;
    while (slot < 64 && connections[slot]) slot++;
    if (slot == 64) die("connections");
    struct connection *c = connections[slot] = calloc(1, sizeof *c);
    c->fd = accept(door, NULL, NULL);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
}

static void receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->frame + c->have, FRAME_MAX - c->have, 0);
    if (got <= 0) {
        for (int i = 0; i < 64; i++)
            if (connections[i] == c) connections[i] = NULL;
        close(c->fd);
        free(c);
        return;
    }
    c->have += got;
    for (size_t size; c->have >= 4 && c->have >= (size = 4 + get32(c->frame)); c->have -= size) {
        serve(c);
        memmove(c->frame, c->frame + size, c->have - size);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "see the head of bare_broker.c\n"), 2;
    int poll = epoll_create1(0), door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    port = atoi(argv[2]);
    log_bytes = malloc(LOG_MAX);
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 64)) die("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, door, &event);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) receive(events[i].data.ptr);
            else accept_one(door, poll);
        }
    }
}
