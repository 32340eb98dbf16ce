/* One request over and over on some connections to each of several brokers, many in flight.
 *
 *   pipelined SECONDS CONNECTIONS WINDOW ERROR-AT plain|tls PORT=FRAME-FILE ...
 *
 * Connects to 127.0.0.1. Made to cost little of the machine that it shares with the brokers: all
 * requests that fit into the window of a connection are sent by one call, each in a TLS record of
 * its own, and between two looks at the replies it sleeps until about a fifth of them should be there. So no broker
 * waits for requests. ERROR-AT is the place of the error code in a reply, counted from its size; a reply with an error
 * ends the program. Prints one line of JSON: replies per second, and the CPU time used.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX 4096
#define READ_MAX 65536
#define RECORD_EXTRA_MAX 4096 /* what TLS may add to a request, and a handshake before the first */
#define PAUSE_NS_MIN 200000 /* of a sleep: a call for each reply costs much of a request */
#define PAUSE_NS_MAX 4000000

struct connection {
    int fd;
    SSL *tls;
    const char *frames; /* WINDOW copies of the request */
    size_t frame_size, unsent; /* bytes of requests that are due and not sent yet */
    size_t have;               /* bytes of a partial reply */
    unsigned char reply[REPLY_MAX];
};

static int window, error_at;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Send what is due. What the kernel does not take now is sent after the next replies. */
static void push_plain(struct connection *c) {
    while (c->unsent) {
        size_t total = c->frame_size * window, at = (total - c->unsent) % c->frame_size, size = c->unsent;
        if (at + size > total) size = total - at;
        ssize_t n = send(c->fd, c->frames + at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) die("send");
        c->unsent -= n;
    }
}

/* The same for TLS: the records of all requests are collected, then sent. */
static void push_tls(struct connection *c) {
    for (; c->unsent; c->unsent -= c->frame_size)
        if (SSL_write(c->tls, c->frames, c->frame_size) <= 0) die("SSL_write");
    if (BIO_flush(SSL_get_wbio(c->tls)) <= 0 && !BIO_should_retry(SSL_get_wbio(c->tls))) die("BIO_flush");
}

static void push(struct connection *c) {
    if (c->tls)
        push_tls(c);
    else
        push_plain(c);
}

/* Count the replies in what was received. */
static long count(struct connection *c, const unsigned char *bytes, size_t size) {
    long found = 0;
    while (size) {
        size_t want = 4;
        if (c->have >= 4) {
            uint32_t length;
            memcpy(&length, c->reply, 4);
            want = 4 + (size_t)ntohl(length);
            if (want > REPLY_MAX) fprintf(stderr, "a reply of %zu bytes\n", want), exit(1);
        }
        size_t take = want - c->have < size ? want - c->have : size;
        memcpy(c->reply + c->have, bytes, take);
        c->have += take, bytes += take, size -= take;
        if (c->have == want && want > 4) {
            if (c->reply[error_at] || c->reply[error_at + 1])
                fprintf(stderr, "error %d\n", c->reply[error_at] * 256 + c->reply[error_at + 1]), exit(1);
            c->have = 0, found++;
        }
    }
    return found;
}

static void open_connection(struct connection *c, int port, SSL_CTX *context) {
    int one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (context) {
        c->tls = SSL_new(context);
        BIO *out = BIO_new(BIO_f_buffer()), *in = BIO_new_socket(c->fd, BIO_NOCLOSE);
        BIO_set_write_buffer_size(out, window * (c->frame_size + RECORD_EXTRA_MAX));
        BIO_push(out, BIO_new_socket(c->fd, BIO_NOCLOSE));
        SSL_set_bio(c->tls, in, out);
        SSL_set_read_ahead(c->tls, 1); /* else a record is read by two calls */
        if (SSL_connect(c->tls) != 1) fprintf(stderr, "no TLS\n"), exit(1);
    }
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
}

static long drain(struct connection *c) {
    static unsigned char bytes[READ_MAX];
    long found = 0;
    for (;;) {
        ssize_t n = c->tls ? SSL_read(c->tls, bytes, sizeof bytes) : recv(c->fd, bytes, sizeof bytes, 0);
        if (n > 0) {
            found += count(c, bytes, n);
            if (c->tls ? !SSL_has_pending(c->tls) : n < (ssize_t)sizeof bytes) return found;
            continue;
        }
        int is_empty = c->tls ? SSL_get_error(c->tls, n) == SSL_ERROR_WANT_READ : n < 0 && errno == EAGAIN;
        if (!is_empty) fprintf(stderr, "connection closed\n"), exit(1);
        return found;
    }
}

int main(int argc, char **argv) {
    if (argc < 7) return fprintf(stderr, "see the head of pipelined.c\n"), 2;
    double seconds = atof(argv[1]);
    int each = atoi(argv[2]), brokers = argc - 6, poll = epoll_create1(0);
    window = atoi(argv[3]), error_at = atoi(argv[4]);
    SSL_CTX *context = strcmp(argv[5], "tls") ? NULL : SSL_CTX_new(TLS_client_method());
    struct connection *all = calloc(brokers * each, sizeof *all);
    for (int b = 0; b < brokers; b++) {
        char *path = strchr(argv[6 + b], '=');
        FILE *file = path ? fopen(path + 1, "rb") : NULL;
        if (!file) die(argv[6 + b]);
        static char frame[1 << 20];
        size_t size = fread(frame, 1, sizeof frame, file);
        fclose(file);
        char *frames = malloc(size * window);
        for (int i = 0; i < window; i++) memcpy(frames + i * size, frame, size);
        for (int i = 0; i < each; i++) {
            struct connection *c = &all[b * each + i];
            c->frames = frames, c->frame_size = size, c->unsent = size * window;
            open_connection(c, atoi(argv[6 + b]), context);
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
            epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
            push(c);
        }
    }
    long replies = 0, in_flight = (long)brokers * each * window, pause = PAUSE_NS_MIN;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double began = now(), end = began + seconds;
    while (now() < end) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, 1000);
        long before_look = replies;
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            long got = drain(c);
            replies += got;
            c->unsent += got * c->frame_size;
            push(c);
        }
        long found = replies - before_look;
        if (found * 8 < in_flight) pause += pause / 8;
        if (found * 4 > in_flight) pause -= pause / 4;
        pause = pause < PAUSE_NS_MIN ? PAUSE_NS_MIN : pause > PAUSE_NS_MAX ? PAUSE_NS_MAX : pause;
        nanosleep(&(struct timespec){0, pause}, NULL);
    }
    double took = now() - began;
    getrusage(RUSAGE_SELF, &after);
    double cpu = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) + (after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                 (after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6;
    printf("{\"rate\": %.1f, \"cpu\": %.4f}\n", replies / took, cpu / took);
    return 0;
}
