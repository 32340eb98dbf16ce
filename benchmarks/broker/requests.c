/* One request over and over on some connections, one in flight on each.
 *
 *   requests HOST PORT FRAME-FILE CONNECTIONS SECONDS [PID [REPLIES]]
 *
 * Connections are opened a few at a time, each few after the previous ones have had a reply, so that
 * the broker's listen backlog does not overflow: the kernel would drop and repeat the first packets
 * after 1, 3, 7, ... s. The time is counted from the moment all are open.
 *
 * It ends after SECONDS, or after REPLIES if they come first.
 *
 * Prints one line of JSON: replies per second, how long one took, and, for a broker's PID, its CPU
 * seconds and resident bytes in that time, with all connections open.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX 65536
#define TIMES_MAX 20000000
#define OPENED_AT_ONCE 32

struct connection { int fd; size_t have; int64_t sent; unsigned char reply[REPLY_MAX]; };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static char frame[1 << 20];
static size_t frame_size;

static void send_request(struct connection *c) {
    c->have = 0;
    c->sent = now_ns();
    for (size_t done = 0; done < frame_size;) {
        ssize_t n = send(c->fd, frame + done, frame_size - done, MSG_NOSIGNAL);
        if (n < 0) die("send");
        done += n;
    }
}

/* Receives what there is; says whether the reply is complete. */
static int receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->reply + c->have, REPLY_MAX - c->have, 0);
    if (got <= 0) {
        fprintf(stderr, "hung up on\n");
        exit(1);
    }
    c->have += got;
    uint32_t size;
    if (c->have < 4) return 0;
    memcpy(&size, c->reply, 4);
    return c->have >= 4 + (size_t)ntohl(size);
}

static void open_all(struct connection *all, int count, const struct sockaddr_in *to, int poll) {
    for (int i = 0, answered = 0; i < count; i++) {
        int one = 1;
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (const struct sockaddr *)to, sizeof *to)) die("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
        send_request(&all[i]);
        if (i + 1 < count && (i + 1) % OPENED_AT_ONCE) continue;
        while (answered <= i) {
            struct epoll_event events[OPENED_AT_ONCE];
            int n = epoll_wait(poll, events, OPENED_AT_ONCE, -1);
            for (int j = 0; j < n; j++) answered += receive(events[j].data.ptr);
        }
    }
}

/* The CPU seconds that a process has used; 0 for no process. */
static double cpu_seconds(const char *pid) {
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    char *after = strrchr(text, ')');
    if (after) sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

/* The resident bytes of a process; 0 for no process. */
static double resident_bytes(const char *pid) {
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%s/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
    return (double)pages * sysconf(_SC_PAGESIZE);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    if (argc < 6 || argc > 8) return fprintf(stderr, "see the head of requests.c\n"), 2;
    FILE *file = fopen(argv[3], "rb");
    if (!file) die(argv[3]);
    frame_size = fread(frame, 1, sizeof frame, file);
    fclose(file);
    int count = atoi(argv[4]), poll = epoll_create1(0);
    double seconds = atof(argv[5]);
    struct connection *all = calloc(count, sizeof *all);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    const char *pid = argc >= 7 ? argv[6] : "none";
    long most = argc == 8 ? atol(argv[7]) : TIMES_MAX;
    open_all(all, count, &to, poll);
    double used = cpu_seconds(pid);
    int64_t *taken = malloc(TIMES_MAX * sizeof *taken), began = now_ns(), end = began + (int64_t)(seconds * 1e9);
    long replies = 0;
    for (int i = 0; i < count; i++) send_request(&all[i]);
    while (now_ns() < end && replies < most && replies < TIMES_MAX - count) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, 1000);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!receive(c)) continue;
            taken[replies++] = now_ns() - c->sent;
            send_request(c);
        }
    }
    if (!replies) return fprintf(stderr, "no reply\n"), 1;
    double took = (now_ns() - began) / 1e9;
    used = cpu_seconds(pid) - used;
    double resident = resident_bytes(pid);
    qsort(taken, replies, sizeof *taken, by_value);
    printf("{\"rate\": %.1f, \"p50\": %.6f, \"p99\": %.6f, \"seconds\": %.3f, \"cpu\": %.2f, \"rss\": %.0f}\n",
           replies / took, taken[replies / 2] / 1e9, taken[replies * 99 / 100] / 1e9, took, used, resident);
    return 0;
}
