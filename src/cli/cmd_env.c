/* `fsdp env`: prints what a bug report needs, as torch.utils.collect_env does: how this program was
 * built, the devices and libraries that it finds, the machine, the job, and the environment
 * variables that change what it does.
 *
 * People paste the output into public reports. So names of hosts are left out, the home folder is
 * printed as ~, and values of variables whose names sound like secrets are not printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/machine.h"
#include "src/cli/common/version.h"

extern char **environ;

typedef struct env_config {
    bool json;
} env_config;

static const fsdp_option table[] = {
    {.name = "json",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(env_config, json),
     .help = "print one JSON object"},
};

static const fsdp_options_spec spec = {
    .program = "fsdp env",
    .usage = "[--json]",
    .summary = "Show the version, the devices and libraries that are found, the machine, the job, "
               "and the environment variables that change what fsdp does, for a bug report. Names "
               "of hosts and values of variables that sound like secrets are left out; the home "
               "folder is shown as ~.",
    .epilogue = "example:\n  fsdp env --json >environment.json\n",
    .table = table,
    .count = FSDP_LENGTH(table),
};

static bool begins_with_any(const char *text, const char *const *beginnings)
{
    for (; *beginnings; beginnings++)
        if (strncmp(text, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

static bool contains_any(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

/* Return true for an environment variable that changes what fsdp does, or where it finds
 * libraries. */
static bool is_shown(const char *entry)
{
    static const char *const beginnings[] = {"FSDP_",
                                             "ACCELERATE_",
                                             "PET_",
                                             "CUDA_",
                                             "NCCL_",
                                             "OMP_",
                                             "NVIDIA_VISIBLE_",
                                             "LD_LIBRARY_PATH=",
                                             "LD_PRELOAD=",
                                             "HF_HOME=",
                                             "HF_HUB_CACHE=",
                                             "TMPDIR=",
                                             "MALLOC_",
                                             "RANK=",
                                             "LOCAL_RANK=",
                                             "WORLD_SIZE=",
                                             "LOCAL_WORLD_SIZE=",
                                             NULL};
    return begins_with_any(entry, beginnings);
}

/* Return true if the value of the variable `name` may contain the name of a host, or a secret. */
static bool is_private(const char *name)
{
    static const char *const words[] = {"TOKEN",    "KEY",     "SECRET", "PASS", "CREDENTIAL",
                                        "RDZV",     "ADDR",    "HOST",   "_IP",  "COMMAND",
                                        "ENDPOINT", "PROJECT", NULL};
    return contains_any(name, words);
}

/* Append `value`, with ~ in place of each path that begins with the home folder. A path begins at
 * the start of the value, or after a character that separates paths. */
static void append_value(fsdp_str *out, const char *value)
{
    const char *home = getenv("HOME");
    const size_t length = home ? strlen(home) : 0;
    for (bool begins = true; *value; begins = strchr(":,=;'\" ", value[-1])) {
        const bool at_home = begins && length > 1 && strncmp(value, home, length) == 0 &&
                             (!value[length] || strchr("/:,", value[length]));
        fsdp_str_append(out, at_home ? "~" : value, 1);
        value += at_home ? length : 1;
    }
}

static void add_variables(fsdp_facts *to)
{
    fsdp_facts_section(to, "environment", NULL);
    for (char **entry = environ; *entry; entry++) {
        const size_t length = strcspn(*entry, "=");
        fsdp_str name = {0}, value = {0};
        if (!is_shown(*entry) || !(*entry)[length])
            continue;
        fsdp_str_append(&name, *entry, length);
        if (name.data && is_private(name.data))
            fsdp_str_printf(&value, "(not shown)");
        else
            append_value(&value, *entry + length + 1);
        if (!name.failed && !value.failed && to->to)
            fprintf(to->to, "  %s=%s\n", name.data, value.data ? value.data : "");
        else if (!name.failed && !value.failed)
            fsdp_fact(to, name.data, "%s", value.data ? value.data : "");
        fsdp_str_fini(&name);
        fsdp_str_fini(&value);
    }
}

static void add_all(fsdp_facts *to)
{
    fsdp_add_version(to);
    fsdp_fact_line(to, "flags", "%s", fsdp_build_flags());
    fsdp_add_machine(to);
    fsdp_add_job(to);
    add_variables(to);
}

static fsdp_status print_json(void)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("fsdp env", &doc));
    fsdp_facts facts = {.root = fsdp_json_root(doc)};
    add_all(&facts);
    const fsdp_status status = fsdp_json_print(doc, FSDP_JSON_PRETTY, &text, NULL);
    if (status == FSDP_OK)
        fputs(text, stdout);
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

int fsdp_cmd_env(int argc, char **argv)
{
    env_config config = {0};
    fsdp_options *options;
    const int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    fsdp_options_destroy(options);
    if (config.json)
        return print_json() == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    fsdp_facts facts = {.to = stdout};
    add_all(&facts);
    return FSDP_EXIT_OK;
}
