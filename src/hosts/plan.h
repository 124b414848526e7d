/* A plan: what the process of a rank needs to start the rank. The launcher of the host makes the
 * plan from its own options. The rank's process (rank_stage.c) gets it as a message or, if no
 * launcher runs on the host, as a word of its command line. */
#pragma once
#include "src/hosts/message.h"
#include "src/launch/launch.h"

/* The shape of a round of the job, as one host sees it. */
typedef struct fsdp_hosts_shape {
    int round;      /* counts from 0 */
    int restarts;   /* number of rounds that have failed so far: TORCHELASTIC_RESTART_COUNT */
    int group_rank; /* index of this host */
    int n_hosts;
    int first_rank; /* RANK of local rank 0 of this host */
    int world_size;
    int n_local; /* ranks of this host */
    int master_port;
} fsdp_hosts_shape;

/* Append the plan of a local rank to *out, as a message. launch->master_port is not used. */
void fsdp_plan_encode(const fsdp_launch *launch, const fsdp_hosts_shape *shape, int local_rank,
                      fsdp_str *out);

/* A plan that fsdp_plan_decode() has read. */
typedef struct fsdp_rank_plan {
    fsdp_launch launch; /* launches one rank; launch.share is set */
    fsdp_launch_share share;
    int round;
    int redirects, tees; /* launch.redirects and launch.tees point to these fields */
    bool on_console;
    cpu_set_t cpus;
    char **command; /* [n + 1]; borrows its words from `message` */
    fsdp_hosts_message message;
} fsdp_rank_plan;

/* Read a plan. *plan contains pointers to its own fields, so it must not be moved afterwards.
 * @return FSDP_ERR_FORMAT if the bytes are not a plan */
FSDP_MUST_CHECK fsdp_status fsdp_plan_decode(const void *bytes, size_t size, fsdp_rank_plan *plan);
void fsdp_plan_fini(fsdp_rank_plan *plan);
