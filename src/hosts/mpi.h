/* The programs of Open MPI and MPICH that start ranks: which are installed, and how they are
 * called. mpirun (mpiexec.hydra) runs on the first host and starts a daemon on each other host
 * through a launch agent. The agent is this program or, with --hosts and --hostfile, ssh. */
#pragma once
#include <fsdp/base.h>

typedef enum fsdp_mpi_kind {
    FSDP_MPI_AUTO,
    FSDP_MPI_OPENMPI,
    FSDP_MPI_MPICH
} fsdp_mpi_kind;

typedef struct fsdp_mpi {
    fsdp_mpi_kind kind;
    char *starter;  /* path of mpirun or mpiexec.hydra. Owned */
    char *daemon;   /* path of orted or hydra_pmi_proxy. Owned */
    char name[128]; /* such as "Open MPI 4.1.4" */
} fsdp_mpi;

/* Find the MPI library to use. FSDP_MPI_AUTO chooses the library with which `program` is linked, if
 * there is one, else Open MPI, else MPICH. `program` may be NULL.
 * @return FSDP_ERR_NOT_FOUND if the library is not installed */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_find(fsdp_mpi_kind wanted, const char *program, fsdp_mpi *mpi);
void fsdp_mpi_fini(fsdp_mpi *mpi);

/* The hosts on which mpirun starts ranks. */
typedef struct fsdp_mpi_hosts {
    int count;
    const int *ranks;         /* [count] number of ranks of each host */
    const char *const *names; /* [count] mpirun's name of each host; the first is this machine */
    /* The launch agent: a program and one argument, both without spaces. NULL: ssh. */
    const char *agent;
    const char *address;          /* address of this machine, to which daemons connect; NULL: MPI
                                     chooses */
    const char *const *variables; /* [n_variables] variables that ranks get from this process */
    size_t n_variables;
    double kill_timeout_s; /* time that ranks have between SIGTERM and SIGKILL of MPI */
} fsdp_mpi_hosts;

/* Make the command line of mpirun. Each rank runs `command` [n_command]. The caller owns
 * *words [*n_words + 1], which ends with NULL, and frees it with fsdp_names_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_command(const fsdp_mpi *mpi, const fsdp_mpi_hosts *hosts,
                                             const char *const *command, size_t n_command,
                                             char ***words, size_t *n_words);

/* A launch agent gets the command line of a daemon as its arguments. Split it into words. Quotes
 * mean what they mean in a shell. Anything that a shell would expand or run is refused. The caller
 * frees *words with fsdp_names_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_split(const char *const *arguments, size_t n, char ***words,
                                           size_t *n_words);
/* Return FSDP_OK if `program`, the first word of a command line, names the daemon of this MPI
 * library, otherwise FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_check_daemon(const fsdp_mpi *mpi, const char *program);

/* The rank and world size of a process, which MPI's daemon gives in environment variables. */
typedef struct fsdp_mpi_place {
    int rank, world_size, local_rank, local_world_size;
} fsdp_mpi_place;
FSDP_MUST_CHECK fsdp_status fsdp_mpi_place_read(fsdp_mpi_place *place);

/* If Hydra, the process manager of MPICH, has started this process, let Hydra end the whole job
 * with this exit code. Otherwise, do nothing. */
void fsdp_mpich_abort(int exit_code);
