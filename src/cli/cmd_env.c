/* `fsdp env`: prints what a bug report needs, as torch.utils.collect_env does: how this program was
 * built, the devices and libraries that it finds, the machine, and the environment variables that
 * change what it does. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "src/base/cpus.h"
#include "src/cli/cli.h"
#include "src/cli/version.h"
#include "src/report/human.h"

extern char **environ;

static const fsdp_options_spec spec = {
    .program = "fsdp env",
    .usage = "",
    .summary = "Show the version, the devices and libraries that are found, the machine, and the "
               "environment variables that change what fsdp does.",
};

static void print_machine(void)
{
    struct utsname system;
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    printf("machine:\n  %-13s %d that this process may use\n", "processors", fsdp_available_cpus());
    printf("  %-13s %s\n", "memory", fsdp_human_bytes(pages * page_bytes).text);
    if (uname(&system) == 0)
        printf("  %-13s %s %s %s\n", "system", system.sysname, system.release, system.machine);
}

/* Variables with these beginnings change what fsdp does, or where it finds libraries. */
static bool is_shown(const char *entry)
{
    static const char *const beginnings[] = {
        "FSDP_",           "PET_",         "CUDA_",
        "NCCL_",           "OMP_",         "NVIDIA_VISIBLE_",
        "LD_LIBRARY_PATH", "SLURM_JOB_ID", "HF_HOME",
        "HF_HUB_CACHE",    "TMPDIR",       "RANK=",
        "LOCAL_RANK=",     "WORLD_SIZE=",  "LOCAL_WORLD_SIZE="};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(entry, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

static void print_variables(void)
{
    printf("environment:\n");
    for (char **entry = environ; *entry; entry++)
        if (is_shown(*entry))
            printf("  %s\n", *entry);
}

int fsdp_cmd_env(int argc, char **argv)
{
    char nothing;
    fsdp_options *options;
    const int code = fsdp_cli_options(&spec, argc, argv, &nothing, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    fsdp_options_destroy(options);
    fsdp_print_version(stdout);
    print_machine();
    print_variables();
    return FSDP_EXIT_OK;
}
