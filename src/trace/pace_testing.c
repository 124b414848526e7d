/* See pace_testing.h. */
#include "src/trace/pace_testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "src/base/clock.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static double flops_per_ns;               /* 0: the rate is not limited */
static _Thread_local int64_t due_ns;      /* the time at which the last product must end; 0: no
                                           * product is under way */
static _Atomic int64_t given_ns, late_ns; /* sums over the ranks that are threads of the process */

static void print_times(void)
{
    fprintf(stderr, "FSDP_TEST_FLOPS: products had %.3f s, and were late by %.3f s\n",
            (double)atomic_load(&given_ns) * 1e-9, (double)atomic_load(&late_ns) * 1e-9);
}

static void read_rate(void)
{
    const char *text = getenv("FSDP_TEST_FLOPS");
    flops_per_ns = text ? strtod(text, NULL) * 1e-9 : 0.0;
    if (flops_per_ns > 0.0 && atexit(print_times) != 0)
        flops_per_ns = 0.0;
}

void fsdp_pace_settle(void)
{
    if (!due_ns)
        return;
    const int64_t left_ns = due_ns - fsdp_clock_ns();
    const struct timespec until = {due_ns / 1000000000, due_ns % 1000000000};
    if (left_ns > 0)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    else
        atomic_fetch_sub(&late_ns, left_ns);
    due_ns = 0;
}

void fsdp_pace_product(double flops)
{
    pthread_once(&once, read_rate);
    if (!(flops_per_ns > 0.0))
        return;
    fsdp_pace_settle();
    const int64_t product_ns = (int64_t)(flops / flops_per_ns);
    due_ns = fsdp_clock_ns() + product_ns;
    atomic_fetch_add(&given_ns, product_ns);
}
