/* Recognizes the environment of one task of several, as set by srun, sbatch, salloc, mpirun and
 * mpiexec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/comm.h>

#include "src/comm/mpi/library.h"
#include "src/comm/rendezvous.h"
#include "src/comm/task.h"
#include "tests/test.h"

static const char *const names[] = {"SLURM_JOB_ID",
                                    "SLURM_NTASKS",
                                    "SLURM_NPROCS",
                                    "SLURM_PROCID",
                                    "SLURM_LOCALID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "MV2_COMM_WORLD_SIZE",
                                    "MV2_COMM_WORLD_RANK",
                                    "PMI_SIZE",
                                    "PMI_RANK",
                                    "PMIX_RANK",
                                    "WORLD_SIZE",
                                    "RANK",
                                    "TORCHELASTIC_RUN_ID",
                                    FSDP_RENDEZVOUS_ENV};

/* Set the variables "NAME=VALUE NAME=VALUE" and unset all others that are examined. */
static void set_all(const char *words)
{
    char copy[512], *rest = copy;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value)
            continue;
        *value = 0;
        setenv(word, value + 1, 1);
    }
}

#define STEP "SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_STEPID=0 "

TEST(one_task_of_several_is_refused)
{
    static const struct {
        const char *environment, *says;
        bool reported_by_task_0;
        const char *mpi; /* the MPI that the tasks belong to; NULL: they cannot form a job */
    } cases[] = {
        {STEP "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_LOCALID=0",
         "SLURM_STEP_NUM_TASKS is 2 and SLURM_PROCID 0: srun started 2 processes", false, NULL},
        {STEP "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=0",
         "`fsdp launch -n 2 ...`", true, NULL},
        /* A step whose size differs from that of the allocation. */
        {STEP "SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=2", "fsdp launch -n 3", true,
         NULL},
        {"SLURM_STEPID=12 SLURM_NPROCS=4 SLURM_PROCID=0", "SLURM_NPROCS is 4", false, NULL},
        {"SLURM_JOB_ID=5 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_LOCALID=1",
         "SLURM_NTASKS is 2 and SLURM_PROCID 1", false, NULL},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0",
         "OMPI_COMM_WORLD_SIZE is 2 and OMPI_COMM_WORLD_RANK 0: mpirun started 2", false,
         "openmpi"},
        {"OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 PMIX_RANK=1", "OMPI_COMM_WORLD_RANK 1",
         true, "openmpi"},
        {"PMI_SIZE=4 PMI_RANK=3", "PMI_SIZE is 4 and PMI_RANK 3: mpiexec", true, "mpich"},
        {"MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE is 2", true, "mpich"},
        {"PMIX_RANK=1", "PMIX_RANK is 1: a PMIx launcher started several processes", false,
         "openmpi"},
        /* mpirun in a batch script: the variables of the allocation do not hide it. */
        {"SLURM_NTASKS=2 SLURM_PROCID=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0",
         "OMPI_COMM_WORLD_SIZE is 2", false, "openmpi"},
        /* srun --mpi=pmix, and srun --mpi=pmi2 */
        {STEP "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMIX_RANK=1",
         "SLURM_STEP_NUM_TASKS is 2 and PMIX_RANK 1: srun started 2 processes", true, "openmpi"},
        {STEP "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 PMI_RANK=1 PMI_SIZE=2", "PMI_SIZE is 2", true,
         "mpich"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_group *group = NULL;
        fsdp_mpi_job job;
        set_all(cases[i].environment);
        ASSERT_ERROR(fsdp_check_single_task(), FSDP_ERR_UNSUPPORTED, cases[i].says);
        ASSERT_ERROR(fsdp_check_single_task(), FSDP_ERR_UNSUPPORTED, "WORLD_SIZE=1");
        ASSERT(fsdp_mpi_find_job(&job) == (cases[i].mpi != NULL));
        if (cases[i].mpi)
            ASSERT_STR(job.key, cases[i].mpi);
        else
            ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_UNSUPPORTED,
                         cases[i].says);
        ASSERT(!group);
        ASSERT(fsdp_task_0_reports() == cases[i].reported_by_task_0);
    }
    set_all("");
}

TEST(a_variable_names_another_mpi_and_a_job_of_one_is_none)
{
    fsdp_mpi_job job;
    fsdp_group *group = NULL;
    set_all("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1");
    setenv("FSDP_MPI", "mpich", 1);
    ASSERT(fsdp_mpi_find_job(&job));
    ASSERT_STR(job.key, "mpich");
    ASSERT_INT(job.size, 2);
    ASSERT_INT(job.rank, 1);
#ifdef FSDP_HAVE_MPI
    setenv("FSDP_MPI", "lam", 1);
    ASSERT_ERROR(fsdp_init_process_group(NULL, &group), FSDP_ERR_INVALID, "FSDP_MPI is 'lam'");
#endif
    unsetenv("FSDP_MPI");
    set_all("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0");
    ASSERT(!fsdp_mpi_find_job(&job));
    set_all("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 WORLD_SIZE=4 RANK=1");
    ASSERT(!fsdp_mpi_find_job(&job));
    set_all("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 WORLD_SIZE=2 RANK=1");
    ASSERT(fsdp_mpi_find_job(&job));
    set_all("PMIX_RANK=1 WORLD_SIZE=2"); /* the size of the job is not known here */
    ASSERT(fsdp_mpi_find_job(&job));
    set_all("PMIX_RANK=1 WORLD_SIZE=1");
    ASSERT(!fsdp_mpi_find_job(&job));
    set_all("");
    ASSERT_ERROR(fsdp_init_process_group("mpi", &group), FSDP_ERR_INVALID, "mpirun, mpiexec");
}

TEST(a_program_that_runs_once_is_a_world_of_one)
{
    static const char *const environments[] = {
        "",
        /* sbatch's script; salloc's shell; the step in which salloc's shell runs on other sites */
        "SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_LOCALID=0",
        "SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967291",
        "SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=batch",
        "SLURM_JOB_ID=5 SLURM_NTASKS=4",
        "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1",
        /* srun -n 1, mpirun -n 1 */
        STEP "SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
        STEP "SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
        "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 PMIX_RANK=0",
        "PMI_SIZE=1 PMI_RANK=0",
        /* values that are not numbers are ignored */
        "SLURM_NTASKS=many SLURM_PROCID=1",
        "OMPI_COMM_WORLD_SIZE= OMPI_COMM_WORLD_RANK=1",
        /* a separate run, as the user requested */
        STEP "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 WORLD_SIZE=1",
        "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 WORLD_SIZE=1 RANK=0",
    };
    for (size_t i = 0; i < sizeof environments / sizeof *environments; i++) {
        fsdp_group *group = NULL;
        set_all(environments[i]);
        ASSERT_OK(fsdp_init_process_group(NULL, &group));
        ASSERT_INT(fsdp_group_world_size(group), 1);
        ASSERT(!fsdp_task_0_reports());
        fsdp_destroy_process_group(group);
    }
    set_all("");
}

TEST(an_allocations_script_knows_how_many_tasks_it_has)
{
    set_all("SLURM_JOB_ID=5 SLURM_NTASKS=4 SLURM_PROCID=0");
    ASSERT_INT(fsdp_allocated_tasks(), 4);
    set_all("SLURM_JOB_ID=5 SLURM_NTASKS=3");
    ASSERT_INT(fsdp_allocated_tasks(), 3);
    set_all("SLURM_NTASKS=4 SLURM_PROCID=0 WORLD_SIZE=1");
    ASSERT_INT(fsdp_allocated_tasks(), 0);
    set_all(STEP "SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0");
    ASSERT_INT(fsdp_allocated_tasks(), 0);
    set_all("");
    ASSERT_INT(fsdp_allocated_tasks(), 0);
}

/* For such a rank, fsdp_init_process_group() reports what is missing. */
TEST(a_rank_of_torchrun_starts_no_ranks)
{
    set_all("RANK=1 WORLD_SIZE=2");
    ASSERT_ERROR(fsdp_check_single_task(), FSDP_ERR_UNSUPPORTED,
                 "WORLD_SIZE is 2 and RANK 1: torchrun started 2 processes");
    ASSERT(!fsdp_task_0_reports());
    set_all("RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none");
    ASSERT(fsdp_task_0_reports());
    set_all("RANK=2 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none"); /* an error of its own */
    ASSERT(!fsdp_task_0_reports());
    set_all("WORLD_SIZE=2"); /* there is no rank */
    ASSERT_OK(fsdp_check_single_task());
    set_all("");
}

/* Variables in the environment of the launcher itself do not matter for its ranks. */
TEST(ranks_of_fsdp_launch_are_never_refused)
{
    set_all(STEP "SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 " FSDP_RENDEZVOUS_ENV
                 "=1,3,4 WORLD_SIZE=2 RANK=0");
    ASSERT_OK(fsdp_check_single_task());
    set_all("");
}
