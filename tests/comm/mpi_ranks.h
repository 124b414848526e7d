/* Ranks of the transport "mpi" on imagined hosts: FSDP_TEST_HOSTS divides the ranks of this machine
 * into hosts that share no memory. A test starts mpirun or mpiexec, which start the test program
 * again with the test body_of_a_rank_of_mpi. Each program with such tests defines it, and calls
 * mpi_ranks_run_body() there. Skipped where the launcher is not installed. */
#pragma once
#include "src/comm/comm.h"
#include "tests/test.h"

typedef struct mpi_launcher {
    const char *name; /* in the messages of tests */
    const char *words[8];
} mpi_launcher;

extern const mpi_launcher open_mpi, mpich;

/* What a rank does, and its name. */
typedef struct mpi_body {
    const char *name;
    fsdp_rank_fn *body;
} mpi_body;

/* In a rank: run the body that the test has named. Otherwise skip the test. */
void mpi_ranks_run_body(fsdp_test *t, const mpi_body *bodies, size_t n);
/* Start `ranks` ranks on `hosts` hosts, and check that all of them succeed. With `has_failure`, the
 * body ends the job with a failure, and the exit status of the launcher is not checked. */
void mpi_ranks_run(fsdp_test *t, const mpi_launcher *l, const char *body, int ranks, int hosts,
                   bool has_failure);
