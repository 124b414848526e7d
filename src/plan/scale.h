/* Estimates the time of a training step on many hosts from a plan.
 *
 * The estimate replays the events of the plan's last step: units are gathered ahead, computed and
 * reduced. The order of these events is that of the real program. Between two events the ranks
 * compute the matrix products that the plan counted, at a given rate. A collective takes the time
 * that exchange.h and host_link.h give. Where the program waits for a collective, the estimate
 * waits too, and counts the time as exposed. All ranks are equal, so one rank is simulated.
 *
 * The time of small collectives (counts, losses and scales) is added at the end of the step.
 *
 * Note [Stragglers]. The compute time of a rank varies from step to step. The estimate assumes
 * that, in each step, the time of each rank is multiplied by a factor, and that the factors are
 * independent and normally distributed, with mean 1 and a given standard deviation. Because every
 * unit is exchanged with all ranks, the slowest rank sets the pace of a step. The quantile q of the
 * slowest of N factors is the quantile q^(1/N) of one factor, so nothing is drawn at random, and
 * two estimates of one plan are equal. */
#pragma once
#include "src/plan/exchange.h"

typedef struct fsdp_scale_options {
    fsdp_interconnect interconnect;
    double flops_per_s; /* floating-point operations of a rank per second; above 0 */
    double straggler; /* standard deviation of a rank's compute time, as a fraction of its mean; 0:
                         all ranks are equally fast */
} fsdp_scale_options;

typedef struct fsdp_scale_estimate {
    int world_size, local_world_size, hosts;
    double step_s;    /* duration of a step without stragglers: compute_s + exposed_* */
    double compute_s; /* without stragglers */
    /* Times in which the program waits for gathers, for reduce-scatters, for sums over replicas,
     * and for small collectives. */
    double exposed_gather_s, exposed_reduce_s, exposed_all_reduce_s, exposed_small_s;
    double efficiency; /* tokens per second of a rank, divided by those of a rank that runs alone */
    double tokens_per_s;          /* source and target tokens of all ranks */
    double host_sent_bytes;       /* bytes that one host sends in a step */
    double backward_gather_bytes; /* the part of host_sent_bytes that is sent in the gathers of
                                     backward */
    double flops;                 /* floating-point operations of a rank in a step */
    int64_t rank_bytes;           /* largest number of bytes that the allocator of a rank
                                     reserves */
    double straggler_step_s;      /* mean of the step over the stragglers' distribution */
    /* [3] Quantiles of the step over the stragglers' distribution: the median, and the durations
     * that one step in ten and one step in a hundred exceed. Without stragglers, these quantiles
     * and straggler_step_s are equal to step_s. */
    double straggler_quantile_s[3];
} fsdp_scale_estimate;

/* Estimate the step of a plan.
 * @return FSDP_ERR_INVALID if an option is out of range, or if the ranks of a shard group do not
 * fill their hosts */
FSDP_MUST_CHECK fsdp_status fsdp_scale_estimate_step(const fsdp_plan *plan,
                                                     const fsdp_scale_options *options,
                                                     fsdp_scale_estimate *out);

/* The levels, between 0 and 1, of the quantiles in straggler_quantile_s. */
extern const double fsdp_scale_quantiles[3];

/* What fsdp_scale_print() and fsdp_scale_print_json() print. All pointers are borrowed. */
typedef struct fsdp_scale_report {
    const fsdp_scale_estimate *estimates; /* [n] */
    size_t n;
    const fsdp_plan *plan; /* one of the plans: names the model and its batch */
    const fsdp_scale_options *options;
    const char *flops_source; /* says where options->flops_per_s comes from */
    const char *strategy;     /* name of the sharding strategy */
} fsdp_scale_report;

/* Print what was assumed, and a table with one row for each estimate. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_print(const fsdp_scale_report *report, FILE *out);
/* Print the same report, as one JSON object. */
FSDP_MUST_CHECK fsdp_status fsdp_scale_print_json(const fsdp_scale_report *report, FILE *out);
