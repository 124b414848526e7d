/* How ranks that are processes find each other. The launcher creates a control block and socket
 * pairs before it forks, and each rank inherits its own ends of the pairs. The launcher calls, in
 * this order:
 *
 *     fsdp_rendezvous_create(world_size, &rendezvous)
 *     for each rank:
 *         fsdp_rendezvous_child_env(), fork()
 *         in the child: fsdp_rendezvous_child(), exec
 *     fsdp_rendezvous_forked()    only the ranks keep their ends open
 *     waitpid()
 *         fsdp_rendezvous_abort() for a child that died
 *         fsdp_rendezvous_failure() to get the error text
 *     fsdp_rendezvous_destroy()   a restart creates a new rendezvous
 *
 * The control block is a sealed memfd. Each buffer that the ranks create later is another memfd,
 * which rank 0 creates and sends over the sockets (SCM_RIGHTS). The memfds and sockets have no
 * names in a file system. So nothing remains if a process is killed, and other processes cannot
 * open the memory. */
#pragma once
#include "src/comm/comm.h"

typedef struct fsdp_rendezvous fsdp_rendezvous;

/* A variable in the environment of a rank. Its value is "1 <fd of the control block> <fds of the
 * rank's sockets, in the order of its peers>", where 1 is the version of the format. */
#define FSDP_RENDEZVOUS_ENV "FSDP_RENDEZVOUS"

/* Create the control block and the socket pairs of a world.
 * @return FSDP_ERR_INVALID for an invalid world_size; FSDP_ERR_NOMEM or FSDP_ERR_IO if a system
 * call fails, for example because too many files are open */
FSDP_MUST_CHECK fsdp_status fsdp_rendezvous_create(int world_size, fsdp_rendezvous **rendezvous);
/* Accepts NULL. */
void fsdp_rendezvous_destroy(fsdp_rendezvous *rendezvous);

/* Write the value of FSDP_RENDEZVOUS_ENV for `rank` to `value` [size]. The launcher puts it into
 * the rank's environment, together with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. `size`
 * must be at least fsdp_rendezvous_env_size(). */
void fsdp_rendezvous_child_env(const fsdp_rendezvous *rendezvous, int rank, char *value,
                               size_t size);
size_t fsdp_rendezvous_env_size(const fsdp_rendezvous *rendezvous);

/* Close the sockets of the other ranks, and let the descriptors of `rank` stay open across exec.
 * Call this in the child between fork and exec. The only system calls are close and fcntl, which
 * are async-signal-safe. */
void fsdp_rendezvous_child(fsdp_rendezvous *rendezvous, int rank);

/* Close the launcher's copies of the descriptors that the ranks have inherited. Call this in the
 * launcher after the last fork. */
void fsdp_rendezvous_forked(fsdp_rendezvous *rendezvous);

/* Post the failure that `rank` died. `how` is, for example, "signal 9, Killed" or "exit status 3".
 * The peers then fail with "rank 1 died (signal 9, Killed)" and the last step, unit and call that
 * the rank recorded. No effect if a failure was posted before; a rank that exits with an error
 * posts one itself. */
void fsdp_rendezvous_abort(fsdp_rendezvous *rendezvous, int rank, const char *how);

/* The failure that was posted first. */
typedef struct fsdp_rendezvous_report {
    int rank; /* the rank that failed */
    fsdp_status status;
    uint32_t step;
    char unit[64], call[32]; /* "" if unknown */
    char message[640];       /* without step, unit and call */
    char text[1024];         /* the complete message in one line, as in the error of the peers */
} fsdp_rendezvous_report;
/* Fill in *report. Return false if nothing has failed yet. */
bool fsdp_rendezvous_failure(const fsdp_rendezvous *rendezvous, fsdp_rendezvous_report *report);

typedef enum fsdp_rank_state {
    FSDP_RANK_STARTING, /* has not called fsdp_init_process_group() yet */
    FSDP_RANK_JOINED,
    FSDP_RANK_LEFT, /* called fsdp_destroy_process_group */
} fsdp_rank_state;
/* Return the state of `rank`. A process that exits with status 0 in state FSDP_RANK_JOINED has not
 * called fsdp_destroy_process_group(). A process that exits in state FSDP_RANK_STARTING runs a
 * program that does not train, as in `fsdp launch -n 2 hostname`. */
fsdp_rank_state fsdp_rendezvous_rank_state(const fsdp_rendezvous *rendezvous, int rank);
