/* A disk that fails and a clock that jumps, in one process, switched while it runs.
 *
 *     LD_PRELOAD=shim.so NEMESIS_CONTROL=<file> NEMESIS_DATA=<directory>
 *
 * The control file is mapped, so a change is seen at the next call:
 *
 *      0  int32  errno of writes, 0 for none     a failing write first writes half of it
 *      4  int32  errno of fsync and fdatasync
 *      8  int32  milliseconds that an fsync takes longer
 *     12  int32  unused
 *     16  int64  milliseconds that the wall clock is ahead; the monotonic clock is left alone
 *
 * Disk faults strike files under NEMESIS_DATA alone. sendfile and mapped memory escape them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int32_t write_errno, sync_errno, sync_delay_ms, unused;
    int64_t clock_ahead_ms;
};

static const struct control nothing;
static const volatile struct control *control = &nothing;
static const char *data = "";

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("NEMESIS_CONTROL");
    if (getenv("NEMESIS_DATA")) data = getenv("NEMESIS_DATA");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) control = map;
    close(fd);
}

static int is_data(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length > 0 && (path[length] = 0, strncmp(path, data, strlen(data)) == 0);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRITE(name)                                                                  \
    ssize_t name(int fd, const void *buffer, size_t count, off64_t at) {             \
        int error = control->write_errno;                                            \
        if (!error || !is_data(fd)) return REAL(name)(fd, buffer, count, at);        \
        REAL(name)(fd, buffer, count / 2, at);                                       \
        errno = error;                                                               \
        return -1;                                                                   \
    }
WRITE(pwrite)
WRITE(pwrite64)

#define WRITEV(name)                                                                 \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t at) {         \
        int error = control->write_errno;                                            \
        if (!error || !is_data(fd)) return REAL(name)(fd, parts, count, at);         \
        REAL(name)(fd, parts, count / 2, at);                                        \
        errno = error;                                                               \
        return -1;                                                                   \
    }
WRITEV(pwritev)
WRITEV(pwritev64)

#define WRITEV2(name)                                                                \
    ssize_t name(int fd, const struct iovec *parts, int count, off64_t at, int how) { \
        int error = control->write_errno;                                            \
        if (!error || !is_data(fd)) return REAL(name)(fd, parts, count, at, how);    \
        REAL(name)(fd, parts, count / 2, at, how);                                   \
        errno = error;                                                               \
        return -1;                                                                   \
    }
WRITEV2(pwritev2)
WRITEV2(pwritev64v2)

#define SYNC(name)                                                                   \
    int name(int fd) {                                                               \
        int error = control->sync_errno, delay = control->sync_delay_ms;             \
        if ((!error && !delay) || !is_data(fd)) return REAL(name)(fd);               \
        if (delay) usleep((useconds_t)delay * 1000);                                 \
        if (!error) return REAL(name)(fd);                                           \
        errno = error;                                                               \
        return -1;                                                                   \
    }
SYNC(fsync)
SYNC(fdatasync)

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = REAL(clock_gettime);
    int result = real(clock, now);
    int64_t ahead = control->clock_ahead_ms;
    if (!result && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = now->tv_nsec + ahead % 1000 * 1000000;
        now->tv_sec += ahead / 1000 + (nanos >= 1000000000) - (nanos < 0);
        now->tv_nsec = nanos + (nanos < 0) * 1000000000L - (nanos >= 1000000000) * 1000000000L;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
