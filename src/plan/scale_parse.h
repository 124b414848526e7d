/* Reads the values of options of `fsdp plan` that describe a network and ranks on many hosts. */
#pragma once
#include "src/plan/exchange.h"

enum {
    FSDP_SCALE_MAX_SIZES = 64
};

/* Read the rank counts of --world-size: "64", a list "8,64,512", or "8..4096", which means 8, 16,
 * 32 and so on up to 4096. Set *n to the number of rank counts, at most FSDP_SCALE_MAX_SIZES. Set
 * *is_range to false if `text` is a single number. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_parse_sizes(const char *text,
                                                   int sizes[FSDP_SCALE_MAX_SIZES], size_t *n,
                                                   bool *is_range);
/* Read "100Gb,2us": the bandwidth of a host's link in bits (b, bit) or bytes (B) per second with a
 * decimal prefix (k, M, G, T), and the latency of a message in ns, us, ms or s. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_parse_interconnect(const char *text, fsdp_interconnect *net);
/* Read "10T": operations per second with a decimal prefix (k, M, G, T, P). "10TFLOPS", "10TFLOP/s"
 * and "10e12" mean the same. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_parse_flops(const char *text, double *flops_per_s);
/* Read the value of --straggler, "5%" or "0.05". *straggler is from 0 to 1. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_parse_straggler(const char *text, double *straggler);
