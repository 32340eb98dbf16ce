/* Compute, and nothing else, for SECONDS; print how many thousand steps were made per second.
 *
 *   compute SECONDS
 *
 * Two of these at a time against one show what the machine gives to two processes that share nothing: the most that two
 * brokers can reach. Each step reads and writes 4 MiB in a scattered order, more than a core has for itself.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WORDS (1 << 19)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "see the head of compute.c\n"), 2;
    uint64_t *words = calloc(WORDS, sizeof *words), value = 88172645463325252ULL;
    double began = now(), end = began + atof(argv[1]);
    long steps = 0;
    while (now() < end)
        for (int i = 0; i < 1000; i++, steps++) {
            value ^= value << 13, value ^= value >> 7, value ^= value << 17;
            words[value % WORDS] += value;
            value += words[(value >> 20) % WORDS] & 1;
        }
    printf("%.1f\n", steps / 1000.0 / (now() - began));
    return 0;
}
