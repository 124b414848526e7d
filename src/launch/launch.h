/* `fsdp launch`: declarations that its parts share.
 *
 * cmd_launch.c reads the options and counts attempts; supervisor.c watches the ranks of one
 * attempt; rank_process.c starts and reaps one rank; rank_output.c redirects, copies and stores the
 * output of a rank and its error message; binding.c chooses the cores of each rank. The launcher
 * has no threads, because one poll loop is enough, and because a child hangs if it is forked after
 * OpenMP's threads have run. */
#pragma once
#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <fsdp/base.h>

#include "src/comm/rendezvous.h"

enum {
    FSDP_LAUNCH_PATH_BYTES = 512
};

typedef enum fsdp_bind {
    FSDP_BIND_CORE, /* an equal block of cores for each rank */
    FSDP_BIND_NUMA, /* the cores of a NUMA node, shared by the ranks on it */
    FSDP_BIND_NONE
} fsdp_bind;

/* The streams of a rank, as the bits that torchrun uses for them. */
enum {
    FSDP_STREAM_STDOUT = 1,
    FSDP_STREAM_STDERR = 2
};

/* What the launcher must run. Filled by cmd_launch.c, read by the other parts. */
typedef struct fsdp_launch {
    int n_ranks;
    char **command;     /* NULL-terminated; borrowed from argv */
    bool is_subcommand; /* command[0] names an fsdp command, which this program runs */
    char *program;      /* path of command[0] if it is another program; owned */
    const char *role, *master_addr, *run_id;
    int master_port, max_restarts, omp_num_threads; /* omp_num_threads: 0 means 1, unless the
                                                       environment sets it */
    double shutdown_timeout_s; /* time from a signal to SIGTERM, and from SIGTERM to SIGKILL; NAN:
                                  the default, which depends on what ends the job */
    char *log_dir;             /* folder of this run, which exists; NULL: no files. Owned */
    int *redirects;            /* [n_ranks] bits of the streams that go only to files. Owned */
    int *tees;                 /* [n_ranks] bits of the streams that go to files and to the console.
                                  Owned */
    bool *on_console;          /* [n_ranks] false if --local-ranks-filter hides the rank's output.
                                  Owned */
    cpu_set_t *cpus;           /* [n_ranks] processors of each rank; NULL: not bound. Owned */
} fsdp_launch;

/* A stream of a rank that the launcher reads from a pipe and copies to a file and to the console
 * (tee). */
typedef struct fsdp_tee {
    int pipe, file; /* -1: none */
    int console;    /* STDOUT_FILENO, STDERR_FILENO, or -1 */
    char line[4096];
    size_t length; /* bytes of the incomplete line in `line` */
} fsdp_tee;

typedef struct fsdp_rank_process {
    int rank;
    pid_t pid;          /* also the rank's process group; 0: not started */
    bool ended;         /* `status` is valid */
    bool was_signalled; /* the launcher sent the rank a signal, so its exit status does not count as
                           a failure of the rank */
    int status;         /* from waitpid */
    int error_fd;       /* memfd for the rank's error message, or -1 */
    char error_path[FSDP_LAUNCH_PATH_BYTES]; /* the rank's TORCHELASTIC_ERROR_FILE, as a path that
                                                the launcher can open */
    fsdp_tee tee[2];                         /* for stdout and for stderr */
} fsdp_rank_process;

/* How an attempt ended. */
typedef struct fsdp_attempt {
    int exit_code;      /* 0, 1, or 128 + the signal that ended the attempt */
    bool interrupted;   /* a signal to the launcher ended the attempt; it is not restarted */
    bool pointless;     /* the command line is wrong, so a restart would fail in the same way */
    char message[2048]; /* describes the failure: "rank 1 (pid 7) was killed by ..." */
} fsdp_attempt;

/* --- supervisor.c --- */
/* Run all ranks once and wait until the last one has ended. Returns an error if not all ranks could
 * be started. In that case, no rank is left running. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_attempt(const fsdp_launch *launch, int restart_count,
                                                fsdp_attempt *attempt);

/* --- rank_process.c --- */
/* Start a rank with fork and exec. `mask` is the signal mask of the rank. After a failure there is
 * no process, but the caller must still call fsdp_rank_output_close(). */
FSDP_MUST_CHECK fsdp_status fsdp_rank_start(const fsdp_launch *launch, fsdp_rendezvous *rendezvous,
                                            int rank, int restart_count, const sigset_t *mask,
                                            fsdp_rank_process *process);
/* Send a signal to the rank and the processes that it started. */
void fsdp_rank_signal(const fsdp_rank_process *process, int signal_number);
/* If the rank has ended, reap it and return true. If it failed, or if `and_children` is true, also
 * kill the processes that it started. */
bool fsdp_rank_reap(fsdp_rank_process *process, bool and_children);
/* Has the rank been stopped since the last call, by SIGSTOP or a debugger? */
bool fsdp_rank_has_stopped(const fsdp_rank_process *process);
/* Describe how the rank ended: "was killed by signal 9 (Killed)", "exited with status 3". */
void fsdp_rank_describe_exit(const fsdp_rank_process *process, char *text, size_t size);

/* --- rank_output.c --- */
/* Make the run's folder, which is called <run id>_<random>, and set launch->log_dir to its path.
 * The folder is made in `log_dir`, or in $TMPDIR if `log_dir` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_make_log_dir(fsdp_launch *launch, const char *log_dir);
/* Open the rank's files, pipes and error file. Call this before fork. stdio[2] receives the
 * descriptors that become the rank's stdout and stderr, or -1 for a stream that the rank shares
 * with the launcher. The caller closes the descriptors. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_output_open(const fsdp_launch *launch, int restart_count,
                                                  fsdp_rank_process *process, int stdio[2]);
/* Copy what has arrived in the pipe, without waiting. Returns false at the end of the stream. */
bool fsdp_tee_pump(fsdp_tee *tee, const char *role, int rank);
/* Copy what is still in the pipes, and close all descriptors of the rank's output. */
void fsdp_rank_output_close(const fsdp_launch *launch, fsdp_rank_process *process);
/* Get the message that the rank left, without a newline. Returns false if there is none. */
bool fsdp_rank_error_message(const fsdp_rank_process *process, char *text, size_t size);

/* --- binding.c --- */
/* Choose launch->cpus. A single rank is not bound. With FSDP_BIND_CORE, ranks are not bound either
 * if there are more ranks than processors. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_bind(fsdp_launch *launch, fsdp_bind bind);
