/* The command lines of mpirun and of its daemons. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/hosts/mpi.h"
#include "tests/test.h"

/* Join words with "|". */
static const char *joined(char **words, size_t n)
{
    static char text[4096];
    text[0] = 0;
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "|" : "", words[i]);
    return text;
}

TEST(a_daemons_line_is_split_as_a_shell_does)
{
    static const char *const openmpi[] = {" orted",
                                          "-mca",
                                          "ess",
                                          "\"env\"",
                                          "-mca",
                                          "orte_hnp_uri",
                                          "\"1.0;tcp://10.0.0.1,192.168.0.1:35081\"",
                                          "'a b'",
                                          "c\\ d",
                                          "\"e\\\"f\"",
                                          "\"\""};
    char **words;
    size_t n;
    ASSERT_OK(fsdp_mpi_split(openmpi, FSDP_LENGTH(openmpi), &words, &n));
    ASSERT_STR(joined(words, n), "orted|-mca|ess|env|-mca|orte_hnp_uri|"
                                 "1.0;tcp://10.0.0.1,192.168.0.1:35081|a b|c d|e\"f|");
    fsdp_names_free(words, n);
}

TEST(what_a_shell_would_do_more_is_refused)
{
    static const char *const lines[] = {"orted; rm -rf /", "orted & x",
                                        "orted | x",       "orted $(x)",
                                        "orted `x`",       "orted \"$HOME\"",
                                        "orted > x",       "orted *",
                                        "orted \"open",    "PATH=x:$PATH ; export PATH ; orted",
                                        "orted\nx"};
    char **words;
    size_t n;
    for (size_t i = 0; i < FSDP_LENGTH(lines); i++)
        ASSERT_ERROR(fsdp_mpi_split(&lines[i], 1, &words, &n), FSDP_ERR_INVALID, "more than words");
    static const char *const nothing[] = {"  "};
    ASSERT_ERROR(fsdp_mpi_split(nothing, 1, &words, &n), FSDP_ERR_INVALID, "no command");
}

/* A launcher that waits runs the daemon of its MPI library and nothing else. */
TEST(only_the_daemon_is_run)
{
    char daemon[] = "/usr/bin/orted";
    const fsdp_mpi mpi = {.kind = FSDP_MPI_OPENMPI, .daemon = daemon};
    ASSERT_OK(fsdp_mpi_check_daemon(&mpi, "orted"));
    ASSERT_OK(fsdp_mpi_check_daemon(&mpi, "/opt/openmpi/bin/orted"));
    static const char *const others[] = {"sh", "/bin/sh", "hydra_pmi_proxy", "orted2", "orted/sh"};
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        ASSERT_ERROR(fsdp_mpi_check_daemon(&mpi, others[i]), FSDP_ERR_INVALID,
                     "only MPI's daemon (orted)");
}

static const int ranks[] = {2, 1};
static const char *const names[] = {"host0", "host1-node1"};
static const char *const command[] = {"prog", "a b"};

TEST(mpirun_is_called_with_the_hosts_and_the_agent)
{
    char starter[] = "/usr/bin/mpirun.openmpi", hydra[] = "/usr/bin/mpiexec.hydra";
    const fsdp_mpi openmpi = {.kind = FSDP_MPI_OPENMPI, .starter = starter};
    const fsdp_mpi mpich = {.kind = FSDP_MPI_MPICH, .starter = hydra};
    const fsdp_mpi_hosts hosts = {.count = 2,
                                  .ranks = ranks,
                                  .names = names,
                                  .agent = "/a -x",
                                  .address = "10.0.0.1",
                                  .kill_timeout_s = 3};
    char **words;
    size_t n;
    ASSERT_OK(fsdp_mpi_command(&openmpi, &hosts, command, 2, &words, &n));
    ASSERT(!words[n]);
    ASSERT_STR(joined(words, n),
               "mpirun.openmpi|--noprefix|--leave-session-attached|--mca|plm|rsh|--mca|"
               "ras|^slurm,tm,lsf,gridengine,alps,loadleveler|--mca|"
               "plm_rsh_no_tree_spawn|1|--bind-to|none|--oversubscribe|--map-by|slot|--mca|"
               "plm_rsh_agent|/a -x|--mca|odls_base_sigkill_timeout|3|-H|host0:2,host1-node1:1|-n|"
               "3|prog|a b");
    fsdp_names_free(words, n);
    ASSERT_OK(fsdp_mpi_command(&mpich, &hosts, command, 2, &words, &n));
    ASSERT_STR(joined(words, n), "mpiexec.hydra|-rmk|user|-launcher|ssh|-bind-to|none|-genvnone|"
                                 "-launcher-exec|/a|-localhost|10.0.0.1|-hosts|"
                                 "host0:2,host1-node1:1|-n|3|prog|a b");
    fsdp_names_free(words, n);
}

TEST(variables_are_passed_on_where_no_launcher_runs)
{
    char starter[] = "mpirun", hydra[] = "mpiexec.hydra";
    static const char *const variables[] = {"FSDP_A", "FSDP_B"};
    const fsdp_mpi openmpi = {.kind = FSDP_MPI_OPENMPI, .starter = starter};
    const fsdp_mpi mpich = {.kind = FSDP_MPI_MPICH, .starter = hydra};
    const fsdp_mpi_hosts hosts = {
        .count = 2, .ranks = ranks, .names = names, .variables = variables, .n_variables = 2};
    char **words;
    size_t n;
    ASSERT_OK(fsdp_mpi_command(&openmpi, &hosts, command, 2, &words, &n));
    ASSERT(strstr(joined(words, n), "|-x|FSDP_A|-x|FSDP_B|-H|"));
    fsdp_names_free(words, n);
    ASSERT_OK(fsdp_mpi_command(&mpich, &hosts, command, 2, &words, &n));
    ASSERT(strstr(joined(words, n), "|-genvlist|FSDP_A,FSDP_B|-hosts|"));
    fsdp_names_free(words, n);
}

/* Make an executable file. */
static void make_program(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    chmod(path, 0755);
}

/* In a folder of imitations that is the only one in $PATH. */
TEST(the_installed_library_is_found)
{
    const char *dir = fsdp_test_dir(t);
    const char *path = getenv("PATH");
    char before[4096], program[512];
    fsdp_mpi mpi;
    snprintf(before, sizeof before, "%s", path ? path : "");
    setenv("PATH", dir, 1);
    ASSERT_ERROR(fsdp_mpi_find(FSDP_MPI_AUTO, NULL, &mpi), FSDP_ERR_NOT_FOUND,
                 "openmpi-bin or mpich");
    make_program(dir, "mpiexec.hydra", "#!/bin/sh\necho 'Version:     4.0.2'\n");
    ASSERT_ERROR(fsdp_mpi_find(FSDP_MPI_MPICH, NULL, &mpi), FSDP_ERR_NOT_FOUND,
                 "install the package mpich");
    make_program(dir, "hydra_pmi_proxy", "#!/bin/sh\n");
    ASSERT_OK(fsdp_mpi_find(FSDP_MPI_AUTO, NULL, &mpi));
    ASSERT_STR(mpi.name, "MPICH 4.0.2");
    fsdp_mpi_fini(&mpi);
    make_program(dir, "mpirun", "#!/bin/sh\necho 'mpirun (OpenRTE) 4.1.4'\n");
    make_program(dir, "orted", "#!/bin/sh\n");
    ASSERT_OK(fsdp_mpi_find(FSDP_MPI_AUTO, NULL, &mpi));
    ASSERT_STR(mpi.name, "Open MPI 4.1.4");
    fsdp_mpi_fini(&mpi);
    /* A program's own library counts more. */
    snprintf(program, sizeof program, "%s/prog", dir);
    FILE *file = fopen(program, "wb");
    fwrite("\177ELF....libmpich.so.12\0", 1, 24, file);
    fclose(file);
    ASSERT_OK(fsdp_mpi_find(FSDP_MPI_AUTO, program, &mpi));
    ASSERT_INT(mpi.kind, FSDP_MPI_MPICH);
    fsdp_mpi_fini(&mpi);
    setenv("PATH", before, 1);
}

TEST(a_rank_finds_its_place_in_the_environment)
{
    static const char *const variables[][4] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
         "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
    static const char *const values[] = {"5", "6", "1", "2"};
    fsdp_mpi_place place;
    for (int library = 0; library < 2; library++) {
        ASSERT_ERROR(fsdp_mpi_place_read(&place), FSDP_ERR_INVALID, "has no rank");
        for (int i = 0; i < 4; i++)
            setenv(variables[library][i], values[i], 1);
        ASSERT_OK(fsdp_mpi_place_read(&place));
        ASSERT_INT(place.rank, 5);
        ASSERT_INT(place.world_size, 6);
        ASSERT_INT(place.local_rank, 1);
        ASSERT_INT(place.local_world_size, 2);
        for (int i = 0; i < 4; i++)
            unsetenv(variables[library][i]);
    }
}
