/* How ranks that are processes find each other. The launcher creates a control block and sockets
 * before it forks, and each rank inherits its ends. The launcher calls, in this order:
 *
 *     fsdp_rendezvous_create(world_size, &rendezvous)
 *     for each rank:
 *         fsdp_rendezvous_child_env(), fork()
 *         in the child: fsdp_rendezvous_child(), exec
 *     fsdp_rendezvous_forked()    only the ranks keep their ends open
 *     waitpid()
 *         fsdp_rendezvous_abort() for a child that died
 *         fsdp_rendezvous_failure() for the text
 *     fsdp_rendezvous_destroy()   a restart creates a new one
 *
 * The block is a sealed memfd. Each buffer that the ranks create later is another memfd, created by
 * rank 0 and sent over the sockets (SCM_RIGHTS). Nothing has a name in a file system, so nothing is
 * left behind if any process is killed, and no other process can open it. */
#pragma once
#include "src/comm/comm.h"

typedef struct fsdp_rendezvous fsdp_rendezvous;

/* In the environment of a rank: "1 <fd of the control block> <sockets, by rank>". */
#define FSDP_RENDEZVOUS_ENV "FSDP_RENDEZVOUS"

/* @return FSDP_ERR_INVALID for an invalid world_size; FSDP_ERR_NOMEM or FSDP_ERR_IO (too many open
 * files) from the system. */
FSDP_MUST_CHECK fsdp_status fsdp_rendezvous_create(int world_size, fsdp_rendezvous **rendezvous);
/* Accepts NULL. */
void fsdp_rendezvous_destroy(fsdp_rendezvous *rendezvous);

/* The value of FSDP_RENDEZVOUS_ENV for `rank`, which the launcher passes next to RANK, WORLD_SIZE,
 * LOCAL_RANK and LOCAL_WORLD_SIZE. `size` must be at least fsdp_rendezvous_env_size(). */
void fsdp_rendezvous_child_env(const fsdp_rendezvous *rendezvous, int rank, char *value,
                               size_t size);
size_t fsdp_rendezvous_env_size(const fsdp_rendezvous *rendezvous);

/* Called in the child between fork and exec: closes the ends of the other ranks and keeps those of
 * this rank open across exec. Calls only close and fcntl. */
void fsdp_rendezvous_child(fsdp_rendezvous *rendezvous, int rank);

/* Called in the launcher after the last fork: closes its copies of the ranks' ends. */
void fsdp_rendezvous_forked(fsdp_rendezvous *rendezvous);

/* Post an abort on behalf of `rank`, which died: "signal 9, Killed", "exit status 3". Its peers
 * fail at once with "rank 1 died (signal 9, Killed)". Step, unit and call are those that the rank
 * reported last. No effect if a failure was posted before, for example by that rank before it
 * exited with an error. */
void fsdp_rendezvous_abort(fsdp_rendezvous *rendezvous, int rank, const char *how);

/* The failure that was posted first. */
typedef struct fsdp_rendezvous_report {
    int rank; /* the rank that failed */
    fsdp_status status;
    uint32_t step;
    char unit[64], call[32]; /* "" where unknown */
    char message[640];       /* without step, unit and call */
    char text[1024];         /* the complete message in one line, as the peers report it */
} fsdp_rendezvous_report;
/* False while nothing has failed. */
bool fsdp_rendezvous_failure(const fsdp_rendezvous *rendezvous, fsdp_rendezvous_report *report);

typedef enum fsdp_rank_state {
    FSDP_RANK_STARTING, /* has not called fsdp_init_process_group */
    FSDP_RANK_JOINED,
    FSDP_RANK_LEFT, /* called fsdp_destroy_process_group */
} fsdp_rank_state;
/* A rank that exits with status 0 while JOINED did not call fsdp_destroy_process_group(). A process
 * that never joined is not a rank of a training program (`fsdp launch -n 2 hostname`). */
fsdp_rank_state fsdp_rendezvous_rank_state(const fsdp_rendezvous *rendezvous, int rank);
