/* The least that a broker written in C has to do: receive a frame, write it to a file, reply.
 *
 *   bare_server FILE REPLY-BYTES        prints its port, serves until it is ended
 *
 * No parsing, no CRC, no offsets: nobody who does more work can be faster.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX (1 << 20)
#define FILE_MAX (256L << 20)

struct connection { int fd; size_t have; unsigned char frame[FRAME_MAX]; };

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "see the head of bare_server.c\n"), 2;
    int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600), poll = epoll_create1(0), one = 1;
    size_t reply_size = strtoul(argv[2], NULL, 10);
    unsigned char *reply = calloc(1, reply_size);
    uint32_t size = htonl(reply_size - 4);
    memcpy(reply, &size, 4);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, 64)) return perror("listen"), 1;
    getsockname(door, (struct sockaddr *)&at, &length);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, door, &event);
    off_t written = 0;
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                c = calloc(1, sizeof *c);
                c->fd = accept(door, NULL, NULL);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                struct epoll_event more = {.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &more);
                continue;
            }
            ssize_t got = recv(c->fd, c->frame + c->have, FRAME_MAX - c->have, 0);
            if (got <= 0) {
                close(c->fd);
                free(c);
                continue;
            }
            c->have += got;
            if (c->have < 4) continue;
            memcpy(&size, c->frame, 4);
            size_t whole = 4 + (size_t)ntohl(size);
            if (c->have < whole) continue;
            if (write(file, c->frame, whole) < 0) return perror("write"), 1;
            if ((written += whole) > FILE_MAX) written = lseek(file, 0, SEEK_SET);
            if (send(c->fd, reply, reply_size, MSG_NOSIGNAL) < 0) return perror("send"), 1;
            c->have = 0;
        }
    }
}
