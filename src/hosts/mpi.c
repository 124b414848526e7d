/* See mpi.h. */
#include "src/hosts/mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/program.h"
#include "src/base/str.h"

typedef struct library {
    fsdp_mpi_kind kind;
    const char *name, *package;
    const char *starters[3]; /* names of its mpirun or mpiexec, the most specific first */
    const char *daemon;
    const char *needed[2]; /* names of the shared library of this MPI; a program that uses this
                              MPI contains one of these names */
} library;

static const library libraries[] = {
    {FSDP_MPI_OPENMPI,
     "Open MPI",
     "openmpi-bin",
     {"mpirun.openmpi", "mpirun", NULL},
     "orted",
     {"libmpi.so.40", NULL}},
    {FSDP_MPI_MPICH,
     "MPICH",
     "mpich",
     {"mpiexec.hydra", NULL},
     "hydra_pmi_proxy",
     {"libmpich.so.12", "libmpi.so.12"}},
};

/* ---- which library ---- */

/* Run `program --version`, and read the beginning of what it prints. */
static void read_version(const char *program, char *text, size_t size)
{
    int ends[2];
    size_t n = 0;
    *text = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return;
    const pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0)
            _exit(127);
        execl(program, program, "--version", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (pid > 0 && n < size - 1) {
        const ssize_t got = read(ends[0], text + n, size - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = 0;
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* Copy the first number with a dot, such as 4.1.4, to `version`. */
static void copy_number(const char *text, char *version, size_t size)
{
    const char *at = text;
    while (*at && !(at[0] >= '0' && at[0] <= '9' && strspn(at, "0123456789.") > 2))
        at++;
    snprintf(version, size, "%.*s", (int)strspn(at, "0123456789.abcrc"), at);
}

/* Find the programs of a library. Return false if they are not installed. Both libraries have a
 * program mpirun, but their daemons have different names, so look for the daemon. */
static bool find_programs(const library *l, fsdp_mpi *mpi)
{
    *mpi = (fsdp_mpi){.kind = l->kind, .daemon = fsdp_program_find(l->daemon)};
    for (size_t i = 0; mpi->daemon && !mpi->starter && l->starters[i]; i++)
        mpi->starter = fsdp_program_find(l->starters[i]);
    if (mpi->starter)
        return true;
    fsdp_mpi_fini(mpi);
    return false;
}

static void name_library(const library *l, fsdp_mpi *mpi)
{
    char text[1024], version[32];
    read_version(mpi->starter, text, sizeof text);
    copy_number(text, version, sizeof version);
    snprintf(mpi->name, sizeof mpi->name, "%s%s%s", l->name, *version ? " " : "", version);
}

/* Return true if the program contains the name of a shared library. */
static bool mentions(const fsdp_mapping *program, const char *name)
{
    return memmem(program->data, program->bytes, name, strlen(name) + 1) != NULL;
}

/* Return the library that the program is linked with, or FSDP_MPI_AUTO if there is none. */
static fsdp_mpi_kind library_of(const char *path)
{
    fsdp_mapping program;
    fsdp_mpi_kind found = FSDP_MPI_AUTO;
    if (!path || fsdp_file_map(path, &program) != FSDP_OK)
        return FSDP_MPI_AUTO;
    if (program.bytes > 4 && memcmp(program.data, "\177ELF", 4) == 0)
        for (size_t i = 0; i < FSDP_LENGTH(libraries) && found == FSDP_MPI_AUTO; i++)
            for (size_t k = 0; k < FSDP_LENGTH(libraries[i].needed); k++)
                if (libraries[i].needed[k] && mentions(&program, libraries[i].needed[k]))
                    found = libraries[i].kind;
    fsdp_file_unmap(&program);
    return found;
}

fsdp_status fsdp_mpi_find(fsdp_mpi_kind wanted, const char *program, fsdp_mpi *mpi)
{
    const bool linked = wanted == FSDP_MPI_AUTO && library_of(program) != FSDP_MPI_AUTO;
    if (linked)
        wanted = library_of(program);
    for (size_t i = 0; i < FSDP_LENGTH(libraries); i++) {
        const library *l = &libraries[i];
        if (wanted != FSDP_MPI_AUTO && wanted != l->kind)
            continue;
        if (find_programs(l, mpi)) {
            name_library(l, mpi);
            return FSDP_OK;
        }
        if (wanted != FSDP_MPI_AUTO)
            return fsdp_error(FSDP_ERR_NOT_FOUND,
                              "several hosts: %s%s%s is not installed: %s and %s are not in $PATH; "
                              "install the package %s on each host",
                              linked ? program : "", linked ? " is linked with it, but " : "",
                              l->name, l->starters[0], l->daemon, l->package);
    }
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "several hosts: neither Open MPI 4 (mpirun, orted) nor MPICH (mpiexec.hydra, "
                      "hydra_pmi_proxy) is in $PATH; install the package openmpi-bin or mpich on "
                      "each host");
}

void fsdp_mpi_fini(fsdp_mpi *mpi)
{
    fsdp_free(mpi->starter);
    fsdp_free(mpi->daemon);
    *mpi = (fsdp_mpi){0};
}

/* ---- the command line of mpirun ---- */

typedef struct word_list {
    char **words;
    size_t n, cap;
    fsdp_status status; /* the first error; further calls then do nothing */
} word_list;

static void add(word_list *list, const char *word)
{
    if (list->status == FSDP_OK)
        list->status = fsdp_names_add(&list->words, &list->n, &list->cap, word);
}

static void add_all(word_list *list, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(list, words[i]);
}

FSDP_PRINTF(2, 3) static void add_text(word_list *list, const char *format, ...)
{
    char text[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add(list, text);
}

/* Add the hosts and their rank counts as one word, such as "first:2,second:2". */
static void add_hosts(word_list *list, const fsdp_mpi_hosts *hosts)
{
    fsdp_str text = {0};
    for (int i = 0; i < hosts->count; i++)
        fsdp_str_printf(&text, "%s%s:%d", i ? "," : "", hosts->names[i], hosts->ranks[i]);
    char *whole = fsdp_str_take(&text);
    if (whole)
        add(list, whole);
    else
        list->status = FSDP_ERR_NOMEM;
    fsdp_free(whole);
}

static int count_ranks(const fsdp_mpi_hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->count; i++)
        n += hosts->ranks[i];
    return n;
}

static void add_openmpi(word_list *list, const fsdp_mpi_hosts *hosts)
{
    /* --noprefix: each host finds the daemon in its own PATH. --leave-session-attached: a daemon
     * ends with its launcher. ras: use the hosts that are named here, even inside an allocation of
     * a batch system. --bind-to none: the launchers bind ranks themselves. */
    static const char *const fixed[] = {"--noprefix", "--leave-session-attached",
                                        "--mca",      "plm",
                                        "rsh",        "--mca",
                                        "ras",        "^slurm,tm,lsf,gridengine,alps,loadleveler",
                                        "--mca",      "plm_rsh_no_tree_spawn",
                                        "1",          "--bind-to",
                                        "none",       "--oversubscribe",
                                        "--map-by",   "slot"};
    add_all(list, fixed, FSDP_LENGTH(fixed));
    if (hosts->agent) {
        add(list, "--mca");
        add(list, "plm_rsh_agent");
        add(list, hosts->agent);
    }
    add(list, "--mca");
    add(list, "odls_base_sigkill_timeout");
    add_text(list, "%.0f", hosts->kill_timeout_s < 1 ? 1 : hosts->kill_timeout_s);
    for (size_t i = 0; i < hosts->n_variables; i++) {
        add(list, "-x");
        add(list, hosts->variables[i]);
    }
    add(list, "-H");
    add_hosts(list, hosts);
}

/* Add -genvlist and the names of the variables, separated by commas. */
static void add_variables(word_list *list, const fsdp_mpi_hosts *hosts)
{
    fsdp_str text = {0};
    for (size_t i = 0; i < hosts->n_variables; i++)
        fsdp_str_printf(&text, "%s%s", i ? "," : "", hosts->variables[i]);
    char *whole = fsdp_str_take(&text);
    add(list, "-genvlist");
    if (whole)
        add(list, whole);
    else
        list->status = FSDP_ERR_NOMEM;
    fsdp_free(whole);
}

static void add_mpich(word_list *list, const fsdp_mpi_hosts *hosts)
{
    static const char *const fixed[] = {"-rmk", "user", "-launcher", "ssh", "-bind-to", "none"};
    add_all(list, fixed, FSDP_LENGTH(fixed));
    if (hosts->n_variables)
        add_variables(list, hosts);
    else
        add(list, "-genvnone");
    if (hosts->agent) {
        /* -launcher-exec takes a program without arguments. Hydra calls it like ssh, with -x, the
         * host and the command. */
        char *program = fsdp_strndup(hosts->agent, strcspn(hosts->agent, " "));
        add(list, "-launcher-exec");
        if (program)
            add(list, program);
        else
            list->status = FSDP_ERR_NOMEM;
        fsdp_free(program);
    }
    if (hosts->address) {
        add(list, "-localhost");
        add(list, hosts->address);
    }
    add(list, "-hosts");
    add_hosts(list, hosts);
}

fsdp_status fsdp_mpi_command(const fsdp_mpi *mpi, const fsdp_mpi_hosts *hosts,
                             const char *const *command, size_t n_command, char ***words,
                             size_t *n_words)
{
    word_list list = {0};
    /* If the name had slashes, Open MPI would look for its daemon in the same folder on all hosts.
     */
    add(&list, fsdp_path_name(mpi->starter));
    if (mpi->kind == FSDP_MPI_OPENMPI)
        add_openmpi(&list, hosts);
    else
        add_mpich(&list, hosts);
    add(&list, "-n");
    add_text(&list, "%d", count_ranks(hosts));
    add_all(&list, command, n_command);
    if (list.status == FSDP_OK && !FSDP_GROW(list.words, list.cap, list.n + 1))
        list.status = FSDP_ERR_NOMEM;
    if (list.status != FSDP_OK) {
        fsdp_names_free(list.words, list.n);
        return list.status;
    }
    list.words[list.n] = NULL;
    *words = list.words;
    *n_words = list.n;
    return FSDP_OK;
}

/* ---- the command line of a daemon ---- */

/* Return true if the character has a special meaning in a shell. `quote` is the quotation mark
 * around it; 0: none. */
static bool is_special(char c, char quote)
{
    if (quote == '\'')
        return false;
    return quote ? strchr("$`", c) != NULL : strchr(";|&<>()$`*?[]{}~#!\n", c) != NULL;
}

/* Append the next word of a line to *word. Return false if there is something that a shell would
 * expand, or a quote that does not end. */
static bool read_word(const char **at, fsdp_str *word)
{
    char quote = 0;
    for (; **at && (quote || !strchr(" \t", **at)); (*at)++) {
        const char c = **at;
        if (quote ? c == quote : c == '"' || c == '\'') {
            quote = quote ? 0 : c;
            continue;
        }
        if (is_special(c, quote))
            return false;
        if (c == '\\' && quote != '\'' && (*at)[1])
            (*at)++;
        fsdp_str_append(word, *at, 1);
    }
    return !quote;
}

static fsdp_status split_line(const char *line, char ***words, size_t *n, size_t *cap)
{
    for (const char *at = line; *(at += strspn(at, " \t"));) {
        fsdp_str word = {0};
        fsdp_str_append(&word, "", 0);
        if (!read_word(&at, &word)) {
            fsdp_str_fini(&word);
            return fsdp_error(FSDP_ERR_INVALID,
                              "MPI's launch agent got a command line with more than words: %s",
                              line);
        }
        char *text = fsdp_str_take(&word);
        fsdp_status status = text ? fsdp_names_add(words, n, cap, text) : FSDP_ERR_NOMEM;
        fsdp_free(text);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_mpi_split(const char *const *arguments, size_t n, char ***words, size_t *n_words)
{
    fsdp_str line = {0};
    size_t cap = 0;
    *words = NULL;
    *n_words = 0;
    for (size_t i = 0; i < n; i++)
        fsdp_str_printf(&line, "%s%s", i ? " " : "", arguments[i]);
    char *text = fsdp_str_take(&line);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = split_line(text, words, n_words, &cap);
    if (status == FSDP_OK && *n_words == 0)
        status = fsdp_error(FSDP_ERR_INVALID, "MPI's launch agent got no command");
    fsdp_free(text);
    if (status != FSDP_OK) {
        fsdp_names_free(*words, *n_words);
        *words = NULL;
        *n_words = 0;
    }
    return status;
}

fsdp_status fsdp_mpi_check_daemon(const fsdp_mpi *mpi, const char *program)
{
    const char *expected = fsdp_path_name(mpi->daemon);
    if (strcmp(fsdp_path_name(program), expected) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "the first host asked to run '%s'; only MPI's daemon (%s) is run for it",
                      program, expected);
}

/* ---- the place of a rank ---- */

static bool read_number(const char *name, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return false;
    const long number = strtol(text, &end, 10);
    *value = (int)number;
    return !*end && number >= 0 && number <= 1 << 24;
}

fsdp_status fsdp_mpi_place_read(fsdp_mpi_place *place)
{
    static const char *const names[][4] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
         "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (read_number(names[i][0], &place->rank) &&
            read_number(names[i][1], &place->world_size) &&
            read_number(names[i][2], &place->local_rank) &&
            read_number(names[i][3], &place->local_world_size))
            return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "launch-rank: the environment has no rank of Open MPI or MPICH; `fsdp launch` "
        "with several hosts runs this command by itself");
}

/* Send the abort command of PMI version 1 to Hydra, over the socket that processes inherit. srun
 * with --mpi=pmi2 also sets PMI_FD, but uses version 2. It does not set MPI_LOCALRANKID, so send
 * nothing if this variable is missing. */
void fsdp_mpich_abort(int exit_code)
{
    const char *text = getenv("PMI_FD");
    if (text && getenv("MPI_LOCALRANKID") && atoi(text) > STDERR_FILENO)
        dprintf(atoi(text), "cmd=abort exitcode=%d\n", exit_code);
}
