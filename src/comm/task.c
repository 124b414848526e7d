/* See task.h.
 *
 * Note [Slurm's variables]. srun sets SLURM_STEP_ID, SLURM_STEP_NUM_TASKS and SLURM_PROCID in each
 * task of a step. salloc starts one shell, and sbatch starts one script. These are single processes
 * outside of the steps of srun. But in their environment, SLURM_NTASKS is the number of tasks of
 * the whole allocation. SLURM_PROCID is unset or 0. SLURM_STEP_ID is unset, a name, or a number of
 * at least 0xfffffff0, which Slurm reserves. So outside of a step, a large SLURM_NTASKS does not
 * show that a process is one of several. Only a SLURM_PROCID above 0 shows it. */
#include "src/comm/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/comm/environment.h"
#include "src/comm/rendezvous.h"

/* A process that another launcher started together with others. In its environment, the variable
 * size_name has the number of these processes, and the variable rank_name has the rank of this
 * process. If size_name is NULL, the launcher sets no variable for the number of processes. */
typedef struct task {
    const char *launcher, *size_name, *rank_name;
    int64_t size, rank; /* size 0: unknown */
    bool task_0_knows;  /* fsdp_check_single_task() certainly fails in task 0, too */
} task;

static bool is_in_slurm_step(void)
{
    static const int64_t first_reserved = 0xfffffff0;
    int64_t id;
    return (fsdp_environment_number("SLURM_STEP_ID", &id) ||
            fsdp_environment_number("SLURM_STEPID", &id)) &&
           id < first_reserved;
}

/* Find out whether this process is one of several tasks of srun. See Note [Slurm's variables]. */
static bool find_slurm_task(task *found)
{
    static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"};
    const bool in_step = is_in_slurm_step();
    size_t i = in_step ? 0 : 1;
    *found = (task){.launcher = "srun", .rank_name = "SLURM_PROCID", .task_0_knows = in_step};
    while (i < FSDP_LENGTH(sizes) && !fsdp_environment_number(sizes[i], &found->size))
        i++;
    if (i == FSDP_LENGTH(sizes) || !fsdp_environment_number(found->rank_name, &found->rank))
        return false;
    found->size_name = sizes[i];
    return found->size > 1 && (in_step || found->rank > 0);
}

static bool find_task(task *found)
{
    for (size_t i = 0; i < FSDP_N_LAUNCHERS; i++) {
        const fsdp_launcher *l = &fsdp_launchers[i];
        *found = (task){.launcher = l->name, .size_name = l->size_name, .rank_name = l->rank_name};
        found->task_0_knows = fsdp_environment_number(found->size_name, &found->size);
        if (fsdp_environment_number(found->rank_name, &found->rank) &&
            (found->size > 1 || (!found->size_name && found->rank > 0)))
            return true;
    }
    return find_slurm_task(found);
}

/* Return true if the environment has FSDP_RENDEZVOUS_ENV or WORLD_SIZE. If it has one of them, the
 * caller ignores the variables of mpirun, srun and similar launchers. */
static bool states_ranks(void)
{
    int64_t world_size;
    return getenv(FSDP_RENDEZVOUS_ENV) || fsdp_environment_number("WORLD_SIZE", &world_size);
}

/* Both torchrun and `fsdp launch` set WORLD_SIZE and RANK. Only `fsdp launch` also sets
 * FSDP_RENDEZVOUS_ENV. */
static bool is_torchrun_rank(task *found)
{
    *found = (task){.launcher = "torchrun", .size_name = "WORLD_SIZE", .rank_name = "RANK"};
    found->task_0_knows =
        getenv("TORCHELASTIC_RUN_ID") !=
        NULL; /* torchrun sets this variable; somebody who starts processes by hand does not */
    return !getenv(FSDP_RENDEZVOUS_ENV) &&
           fsdp_environment_number(found->size_name, &found->size) &&
           fsdp_environment_number(found->rank_name, &found->rank) && found->size > 1 &&
           found->rank < found->size;
}

static bool is_one_of_several(task *found)
{
    return is_torchrun_rank(found) || (!states_ranks() && find_task(found));
}

fsdp_status fsdp_check_single_task(void)
{
    static const char advice[] =
        "but ranks find each other only if `fsdp launch -n %s ...` starts them, or an MPI (mpirun, "
        "srun --mpi=pmix for Open MPI, srun --mpi=pmi2 for MPICH): run that once. "
        "WORLD_SIZE=1 in the environment makes each process a run of its own";
    task t;
    char n[24] = "N", how[sizeof advice + sizeof n];
    if (!is_one_of_several(&t))
        return FSDP_OK;
    if (t.size)
        snprintf(n, sizeof n, "%lld", (long long)t.size);
    snprintf(how, sizeof how, advice, n);
    if (!t.size_name)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "environment: %s is %lld: %s started several processes, %s", t.rank_name,
                          (long long)t.rank, t.launcher, how);
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "environment: %s is %lld and %s %lld: %s started %lld processes, %s",
                      t.size_name, (long long)t.size, t.rank_name, (long long)t.rank, t.launcher,
                      (long long)t.size, how);
}

int64_t fsdp_allocated_tasks(void)
{
    int64_t size = 0, rank = 0;
    if (states_ranks() || is_in_slurm_step() || !fsdp_environment_number("SLURM_NTASKS", &size))
        return 0;
    return fsdp_environment_number("SLURM_PROCID", &rank) && rank > 0 ? 0 : size;
}

bool fsdp_task_0_reports(void)
{
    task t;
    return is_one_of_several(&t) && t.task_0_knows && t.rank > 0;
}
