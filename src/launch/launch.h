/* Declares what the source files of `fsdp launch` share.
 *
 * An attempt is one run of all ranks. cmd_launch.c reads the options and restarts failed attempts.
 * supervisor.c watches the ranks of one attempt. rank_process.c starts and reaps one rank.
 * rank_output.c redirects and copies the output of one rank, and reads its error message. binding.c
 * chooses the cores of each rank. launch_options.c and accelerate*.c have the options.
 *
 * The launcher does all its work in one poll loop and has no threads. In particular, it does not
 * start the threads of OpenMP: if a process with such threads forks, the child hangs. */
#pragma once
#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <fsdp/base.h>

#include "src/comm/rendezvous.h"

enum {
    FSDP_LAUNCH_PATH_BYTES = 512
};

/* Environment variables that MPI's daemons pass to the processes that they start: the path of
 * `fsdp`, and the name of the socket of the launcher. Ranks do not get these variables. */
#define FSDP_LAUNCH_EXE_ENV "FSDP_LAUNCH_EXE"
#define FSDP_LAUNCH_SOCKET_ENV "FSDP_LAUNCH_SOCKET"
/* Variable of the ranks: the number of times that this launcher has already started the ranks of
 * the job. If a host has joined during the job, this number is larger than
 * TORCHELASTIC_RESTART_COUNT, which counts only failures. */
#define FSDP_LAUNCH_ROUND_ENV "FSDP_LAUNCH_ROUND"
/* Variable of the ranks. It is set if the user did not choose OMP_NUM_THREADS and this launcher set
 * it to 1, as torchrun does. The program `fsdp` then ignores OMP_NUM_THREADS and divides the cores
 * among the ranks. */
#define FSDP_LAUNCH_OMP_ENV "FSDP_LAUNCH_OMP_DEFAULT"

typedef enum fsdp_bind {
    FSDP_BIND_CORE, /* an equal block of cores for each rank */
    FSDP_BIND_NUMA, /* the cores of a NUMA node; several ranks may share them */
    FSDP_BIND_NONE
} fsdp_bind;

/* The streams of a rank. The values are those of torchrun's options --redirects and --tee; 3 means
 * both streams. */
enum {
    FSDP_STREAM_STDOUT = 1,
    FSDP_STREAM_STDERR = 2
};

/* The place of this process's ranks in a job of several hosts. MPI's daemon starts each rank
 * through a launcher of one rank (src/hosts/rank_stage.c). */
typedef struct fsdp_launch_share {
    /* first_rank: RANK of this launcher's first process. world_size: WORLD_SIZE. */
    int first_rank, world_size;
    /* first_local_rank: LOCAL_RANK of this launcher's first process. local_world_size:
     * LOCAL_WORLD_SIZE. */
    int first_local_rank, local_world_size;
    int group_rank, group_world_size; /* index of the host, and number of hosts */
    int restarts;                     /* TORCHELASTIC_RESTART_COUNT */
    /* Socket to the launcher of this host; -1: none. Each byte that arrives is the number of a
     * signal for the ranks; 0 means that the job failed. When the other end is closed, the ranks
     * are killed. */
    int parent_fd;
} fsdp_launch_share;

/* What the launcher must run, and how. cmd_launch.c fills it, and the other files read it. */
typedef struct fsdp_launch {
    int n_ranks;
    char **command;     /* NULL-terminated; borrowed from argv */
    bool is_subcommand; /* command[0] is a subcommand of fsdp, such as "train" */
    char *program;      /* path of command[0]; NULL: command[0] is a subcommand. Owned */
    const char *role, *master_addr, *run_id;
    /* Prefix of each line that --tee writes to the console. ${role_name}, ${local_rank}, ${rank}
     * and ${hostname} are replaced in it. */
    const char *line_prefix;
    /* omp_num_threads: the value of OMP_NUM_THREADS for each rank. 0: ranks inherit OMP_NUM_THREADS
     * from the launcher. If the launcher does not have this variable either, it is set to 1 if
     * there are several ranks, and is not set for a single rank. */
    int master_port, max_restarts, omp_num_threads;
    double shutdown_timeout_s; /* seconds that ranks have from a signal to SIGTERM, and from SIGTERM
                                  to SIGKILL (Note [How a job ends] in supervisor.c); NAN: the
                                  default */
    char *log_dir;  /* existing folder for this run's files; NULL: no files are written. Owned */
    int *redirects; /* [n_ranks] bits of the streams that go only to a file. Owned */
    int *tees;      /* [n_ranks] bits of the streams that go to a file and to the console. Owned */
    /* [n_ranks] False: --local-ranks-filter hides the output of this rank. Owned. */
    bool *on_console;
    cpu_set_t *cpus;                /* [n_ranks] processors of each rank; NULL: not bound. Owned */
    const fsdp_launch_share *share; /* borrowed; NULL: this host runs all ranks of the job */
} fsdp_launch;

/* Return RANK of process `index` of this launcher. fsdp_launch_local_rank_of() returns its
 * LOCAL_RANK. */
static inline int fsdp_launch_rank_of(const fsdp_launch *launch, int index)
{
    return index + (launch->share ? launch->share->first_rank : 0);
}

static inline int fsdp_launch_local_rank_of(const fsdp_launch *launch, int index)
{
    return index + (launch->share ? launch->share->first_local_rank : 0);
}

/* A stream of a rank that is copied to a file and to the console. The launcher reads the stream
 * from a pipe. */
typedef struct fsdp_tee {
    int pipe, file; /* descriptors of the pipe's reading end and of the file; -1: none */
    int console;    /* STDOUT_FILENO or STDERR_FILENO; -1: not copied to the console */
    char line[4096];
    size_t length; /* number of bytes in `line`. They are the beginning of a line whose newline has
                      not arrived yet */
} fsdp_tee;

typedef struct fsdp_rank_process {
    int rank;
    pid_t pid;  /* also the rank's process group; 0: not started */
    bool ended; /* the process has ended, and `status` is valid */
    /* The launcher sent a signal to the rank, so the rank's exit status does not count as a
     * failure. */
    bool was_signalled;
    int status;       /* from waitpid */
    double stopped_s; /* time (fsdp_clock_s()) at which a signal stopped the rank; 0: it runs */
    int error_fd;     /* memfd for the rank's error message, or -1 */
    /* The value of the rank's TORCHELASTIC_ERROR_FILE: the path of the file to which the rank
     * writes its error message. The path of a memfd is /proc/self/fd/<error_fd>. The launcher can
     * open this path, too, because it has the same descriptor. */
    char error_path[FSDP_LAUNCH_PATH_BYTES];
    fsdp_tee tee[2]; /* tee[0] for stdout, tee[1] for stderr */
} fsdp_rank_process;

/* How an attempt ended. */
typedef struct fsdp_attempt {
    int exit_code; /* 0, 1, or fsdp_exit_of_signal() of the signal that ended the attempt */
    /* true: a signal ended the attempt, or the launcher of this host did; there is no restart. */
    bool interrupted;
    /* true: a signal asked the ranks to end, and they failed instead, for example because the last
     * checkpoint could not be written. exit_code is FSDP_EXIT_FAILURE. */
    bool failed_after_signal;
    bool pointless;     /* the command line is wrong, so a restart would also fail */
    char message[2048]; /* describes the failure: "rank 1 (pid 7) was killed by ..." */
} fsdp_attempt;

/* --- supervisor.c --- */
/* Run all ranks once, and wait until all have ended. Return an error if a rank could not be
 * started; the other ranks have then been killed, and *attempt is not set. `round` is how many
 * times the ranks of the job have been started before. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_attempt(const fsdp_launch *launch, int round,
                                                fsdp_attempt *attempt);

/* --- rank_process.c --- */
/* Start a rank with fork and exec. `mask` becomes the signal mask of the rank. After an error there
 * is no process, but the caller must still call fsdp_rank_output_close(). */
FSDP_MUST_CHECK fsdp_status fsdp_rank_start(const fsdp_launch *launch, fsdp_rendezvous *rendezvous,
                                            int rank, int round, const sigset_t *mask,
                                            fsdp_rank_process *process);
/* Send a signal to the rank and to the processes that it started. */
void fsdp_rank_signal(const fsdp_rank_process *process, int signal_number);
/* If the rank has ended, reap it and return true. If the rank failed or `and_children` is true,
 * also kill the processes that the rank started. */
bool fsdp_rank_reap(fsdp_rank_process *process, bool and_children);
/* Return true if the rank has been stopped (by SIGSTOP or a debugger) since this function was last
 * called for this rank. */
bool fsdp_rank_has_stopped(const fsdp_rank_process *process);
/* Return true if the rank has been continued (SIGCONT) since this function was last called for this
 * rank. */
bool fsdp_rank_has_continued(const fsdp_rank_process *process);
/* Write how the rank ended to `text`, for example "was killed by signal 9 (Killed)" or "exited with
 * status 3". */
void fsdp_rank_describe_exit(const fsdp_rank_process *process, char *text, size_t size);

/* --- rank_output.c --- */
/* Make a folder for this run, and set launch->log_dir to its path. Its name is <run_id>_<random>.
 * Its parent is `log_dir`; if that is NULL, it is $TMPDIR or /tmp. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_make_log_dir(fsdp_launch *launch, const char *log_dir);
/* Open the rank's files, pipes and error file. Call this before fork. Set stdio[0] to the
 * descriptor that becomes the rank's stdout, and stdio[1] to the descriptor that becomes its
 * stderr. -1 means that the rank writes to the launcher's stream. The caller closes these
 * descriptors. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_output_open(const fsdp_launch *launch, int round,
                                                  fsdp_rank_process *process, int stdio[2]);
/* Read what has arrived in the pipe, without waiting and up to a limit, and copy it to the file and
 * the console. Return false at the end of the stream. */
bool fsdp_tee_pump(fsdp_tee *tee, const fsdp_launch *launch, int rank);
/* Copy what is still in the rank's pipes, and close all descriptors that fsdp_rank_output_open()
 * put into *process. */
void fsdp_rank_output_close(const fsdp_launch *launch, fsdp_rank_process *process);
/* Read the message in the rank's error file, without a newline at its end. Return false if there is
 * no message. */
bool fsdp_rank_error_message(const fsdp_rank_process *process, char *text, size_t size);

/* --- python_script.c --- */
/* Return an error if `path` is a Python script that the system cannot start as a program. The
 * message says which command does the same. `no_python` is the flag --no-python. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_check_script(const char *path, bool no_python);

/* --- binding.c --- */
/* Choose the processors of each rank (launch->cpus). launch->cpus stays NULL, and no rank is bound,
 * if `bind` is FSDP_BIND_NONE, if there is only one rank, or if the system does not report which
 * processors the launcher may use. launch->cpus also stays NULL if `bind` is FSDP_BIND_CORE and
 * there are more ranks than processors. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_bind(fsdp_launch *launch, fsdp_bind bind);
