/* One request over and over on some connections, one in flight on each.
 *
 *   requests HOST PORT FRAME-FILE CONNECTIONS SECONDS
 *
 * Prints one line of JSON: replies per second, and how long one took.
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

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "see the head of requests.c\n"), 2;
    FILE *file = fopen(argv[3], "rb");
    if (!file) die(argv[3]);
    frame_size = fread(frame, 1, sizeof frame, file);
    fclose(file);
    int count = atoi(argv[4]), poll = epoll_create1(0);
    double seconds = atof(argv[5]);
    struct connection *all = calloc(count, sizeof *all);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &to.sin_addr);
    for (int i = 0; i < count; i++) {
        int one = 1;
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (struct sockaddr *)&to, sizeof to)) die("connect");
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
        send_request(&all[i]);
    }
    int64_t *taken = malloc(TIMES_MAX * sizeof *taken), began = now_ns(), end = began + (int64_t)(seconds * 1e9);
    long replies = 0;
    while (now_ns() < end && replies < TIMES_MAX - count) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, 1000);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            ssize_t got = recv(c->fd, c->reply + c->have, REPLY_MAX - c->have, 0);
            if (got <= 0) return fprintf(stderr, "hung up on\n"), 1;
            c->have += got;
            if (c->have < 4) continue;
            uint32_t size;
            memcpy(&size, c->reply, 4);
            if (c->have < 4 + (size_t)ntohl(size)) continue;
            taken[replies++] = now_ns() - c->sent;
            send_request(c);
        }
    }
    if (!replies) return fprintf(stderr, "no reply\n"), 1;
    double took = (now_ns() - began) / 1e9;
    qsort(taken, replies, sizeof *taken, by_value);
    printf("{\"rate\": %.1f, \"p50\": %.6f, \"p99\": %.6f}\n", replies / took, taken[replies / 2] / 1e9,
           taken[replies * 99 / 100] / 1e9);
    return 0;
}
