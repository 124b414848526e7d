/* See mpi_ranks.h. */
#include "tests/comm/mpi_ranks.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/program.h"

static const char body_env[] = "FSDP_TEST_MPI_BODY";

void mpi_ranks_run_body(fsdp_test *t, const mpi_body *bodies, size_t n)
{
    const char *name = getenv(body_env);
    fsdp_group *group = NULL;
    size_t i = 0;
    if (!name)
        SKIP("other tests start it");
    while (i < n && strcmp(bodies[i].name, name) != 0)
        i++;
    ASSERT(i < n);
    ASSERT_OK(fsdp_init_process_group(NULL, &group));
    const fsdp_status status = bodies[i].body(group, NULL);
    if (status != FSDP_OK) {
        fsdp_test_fail(t, __FILE__, __LINE__, "rank %d: %s: %s", fsdp_group_rank(group), name,
                       fsdp_last_error());
        fsdp_group_abort(group, status);
    } else {
        /* After a failure, the launcher may end this process as soon as another one has ended. */
        printf("rank done\n");
        fflush(stdout);
    }
    fsdp_destroy_process_group(group);
}

/* ---- starting ranks ---- */

const mpi_launcher open_mpi = {
    "Open MPI", {"mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-np", NULL}};
const mpi_launcher mpich = {"MPICH", {"mpiexec.hydra", "-np", NULL}};

static bool is_installed(const char *program)
{
    char *path = fsdp_program_find(program);
    fsdp_free(path);
    return path != NULL;
}

/* Start `ranks` ranks on `hosts` imagined hosts. The output is written to the file `log`. Return
 * the exit status of the launcher. */
static int start(const mpi_launcher *l, const char *body, int ranks, int hosts, const char *log)
{
    char n[16], h[16];
    char *argv[16];
    int argc = 0, status;
    snprintf(n, sizeof n, "%d", ranks);
    snprintf(h, sizeof h, "%d", hosts);
    for (; l->words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)l->words[argc];
    argv[argc++] = n;
    argv[argc++] = (char[]){"/proc/self/exe"};
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    argv[argc - 1] = self;
    argv[argc++] = (char[]){"body_of_a_rank_of_mpi"};
    argv[argc] = NULL;
    const pid_t pid = fork();
    if (pid == 0) {
        const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv(body_env, body, 1);
        setenv("FSDP_TEST_HOSTS", h, 1);
        if (strcmp(body, "stop") == 0)
            setenv("FSDP_STALL_S", "1.5", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        unsetenv("WORLD_SIZE");
        unsetenv("RANK");
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void print_log(const char *log)
{
    char line[512];
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file))
        fputs(line, stdout);
    if (file)
        fclose(file);
}

/* Return how many ranks have succeeded. The launcher may mix the lines of several ranks. */
static int count_successes(const char *log)
{
    char line[512];
    int n = 0;
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file))
        for (const char *at = line; (at = strstr(at, "rank done")) != NULL; at++)
            n++;
    if (file)
        fclose(file);
    return n;
}

/* After a failure MPI is not finalized, so the launcher's exit status is not 0. */
void mpi_ranks_run(fsdp_test *t, const mpi_launcher *l, const char *body, int ranks, int hosts,
                   bool has_failure)
{
    char log[256];
    if (!is_installed(l->words[0]))
        SKIP("%s is not installed", l->words[0]);
#ifndef FSDP_HAVE_MPI
    SKIP("built without MPI");
#endif
    if (UNDER_SANITIZER)
        SKIP("MPI's own memory would be reported");
    snprintf(log, sizeof log, "%s/log", fsdp_test_dir(t));
    const int status = start(l, body, ranks, hosts, log);
    const int expected = strcmp(body, "stop") == 0 ? ranks - 1 : ranks;
    if ((status != 0 && !has_failure) || count_successes(log) != expected) {
        print_log(log);
        FAIL("%s: %s with %d ranks on %d hosts: exit status %d", l->name, body, ranks, hosts,
             status);
    }
}
