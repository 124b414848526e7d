/* See task.h.
 *
 * Note [Slurm's variables]. srun sets SLURM_STEP_ID, SLURM_STEP_NUM_TASKS and SLURM_PROCID in each
 * task of a step. salloc starts one shell, and sbatch starts one script. These are single processes
 * outside of the steps of srun. But in their environment, SLURM_NTASKS is the number of tasks of
 * the whole allocation. SLURM_PROCID is unset or 0. SLURM_STEP_ID is unset, a name, or a number of
 * at least 0xfffffff0, which Slurm reserves. So outside of a step, a large SLURM_NTASKS does not
 * show that a process is one of several. Only a SLURM_PROCID above 0 shows it. */
#include "src/comm/task.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/comm/rendezvous.h"

/* A process that another launcher started together with others. In its environment, the variable
 * size_name has the number of these processes, and the variable rank_name has the rank of this
 * process. If size_name is NULL, the launcher sets no variable for the number of processes. */
typedef struct task {
    const char *launcher, *size_name, *rank_name;
    long size, rank;   /* size 0: unknown */
    bool task_0_knows; /* fsdp_check_single_task() certainly fails in task 0, too */
} task;

static const task launchers[] = {
    {.launcher = "mpirun",
     .size_name = "OMPI_COMM_WORLD_SIZE",
     .rank_name = "OMPI_COMM_WORLD_RANK"},
    {.launcher = "mpirun", .size_name = "MV2_COMM_WORLD_SIZE", .rank_name = "MV2_COMM_WORLD_RANK"},
    {.launcher = "mpiexec", .size_name = "PMI_SIZE", .rank_name = "PMI_RANK"},
    {.launcher = "a PMIx launcher", .rank_name = "PMIX_RANK"},
};

/* Set *value to the number in the environment variable `name`. Return false if the variable is not
 * set or is not a non-negative integer, or if `name` is NULL. */
static bool read_number(const char *name, long *value)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text)
        return false;
    errno = 0;
    const long read = strtol(text, &end, 10);
    if (*end || errno || read < 0)
        return false;
    *value = read;
    return true;
}

static bool is_in_slurm_step(void)
{
    static const long first_reserved = 0xfffffff0L;
    long id;
    return (read_number("SLURM_STEP_ID", &id) || read_number("SLURM_STEPID", &id)) &&
           id < first_reserved;
}

/* Find out whether this process is one of several tasks of srun. See Note [Slurm's variables]. */
static bool find_slurm_task(task *found)
{
    static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"};
    const bool in_step = is_in_slurm_step();
    size_t i = in_step ? 0 : 1;
    *found = (task){.launcher = "srun", .rank_name = "SLURM_PROCID", .task_0_knows = in_step};
    while (i < FSDP_LENGTH(sizes) && !read_number(sizes[i], &found->size))
        i++;
    if (i == FSDP_LENGTH(sizes) || !read_number(found->rank_name, &found->rank))
        return false;
    found->size_name = sizes[i];
    return found->size > 1 && (in_step || found->rank > 0);
}

static bool find_task(task *found)
{
    for (size_t i = 0; i < FSDP_LENGTH(launchers); i++) {
        *found = launchers[i];
        found->task_0_knows = read_number(found->size_name, &found->size);
        if (read_number(found->rank_name, &found->rank) &&
            (found->size > 1 || (!found->size_name && found->rank > 0)))
            return true;
    }
    return find_slurm_task(found);
}

/* Return true if the environment has FSDP_RENDEZVOUS_ENV or WORLD_SIZE. If it has one of them, the
 * caller ignores the variables of mpirun, srun and similar launchers. */
static bool states_ranks(void)
{
    long world_size;
    return getenv(FSDP_RENDEZVOUS_ENV) || read_number("WORLD_SIZE", &world_size);
}

/* Both torchrun and `fsdp launch` set WORLD_SIZE and RANK. Only `fsdp launch` also sets
 * FSDP_RENDEZVOUS_ENV. */
static bool is_torchrun_rank(task *found)
{
    *found = (task){.launcher = "torchrun", .size_name = "WORLD_SIZE", .rank_name = "RANK"};
    found->task_0_knows =
        getenv("TORCHELASTIC_RUN_ID") != NULL; /* torchrun sets it; a start by hand does not */
    return !getenv(FSDP_RENDEZVOUS_ENV) && read_number(found->size_name, &found->size) &&
           read_number(found->rank_name, &found->rank) && found->size > 1 &&
           found->rank < found->size;
}

static bool is_one_of_several(task *found)
{
    return is_torchrun_rank(found) || (!states_ranks() && find_task(found));
}

fsdp_status fsdp_check_single_task(void)
{
    static const char advice[] =
        "but ranks find each other only if `fsdp launch -n %s ...` starts them: run that once. "
        "WORLD_SIZE=1 in the environment makes each process a run of its own";
    task t;
    char n[24] = "N", how[sizeof advice + sizeof n];
    if (!is_one_of_several(&t))
        return FSDP_OK;
    if (t.size)
        snprintf(n, sizeof n, "%ld", t.size);
    snprintf(how, sizeof how, advice, n);
    if (!t.size_name)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "environment: %s is %ld: %s started several processes, %s", t.rank_name,
                          t.rank, t.launcher, how);
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "environment: %s is %ld and %s %ld: %s started %ld processes, %s",
                      t.size_name, t.size, t.rank_name, t.rank, t.launcher, t.size, how);
}

int64_t fsdp_allocated_tasks(void)
{
    long size = 0, rank = 0;
    if (states_ranks() || is_in_slurm_step() || !read_number("SLURM_NTASKS", &size))
        return 0;
    return read_number("SLURM_PROCID", &rank) && rank > 0 ? 0 : size;
}

bool fsdp_task_0_reports(void)
{
    task t;
    return is_one_of_several(&t) && t.task_0_knows && t.rank > 0;
}
