/* `fsdp completion SHELL`: prints a script that completes commands, options and their values. */
#include "src/cli/pages/completion.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/cli/common/cli.h"

static const char *const shell_names[] = {"bash", "zsh", "fish", NULL};

static const fsdp_options_spec spec = {
    .program = "fsdp completion",
    .usage = "bash|zsh|fish",
    .summary = "Print a script with which a shell completes commands, options and their values. "
               "'make install' and packages install the scripts where the shells look for them.",
    .epilogue = "examples:\n"
                "  eval \"$(fsdp completion bash)\"\n"
                "  fsdp completion zsh >~/.zfunc/_fsdp\n"
                "  fsdp completion fish >~/.config/fish/completions/fsdp.fish\n",
    .positional = "SHELL: bash, zsh or fish",
    .positional_words = shell_names,
    .min_positional = 1,
    .max_positional = 1,
};

static fsdp_status print_script(const char *shell)
{
    static fsdp_status (*const scripts[])(fsdp_str *) = {fsdp_completion_bash, fsdp_completion_zsh,
                                                         fsdp_completion_fish};
    for (size_t i = 0; shell_names[i]; i++) {
        if (strcmp(shell_names[i], shell) != 0)
            continue;
        fsdp_str out = {0};
        const fsdp_status status = scripts[i](&out);
        char *text = status == FSDP_OK ? fsdp_str_take(&out) : NULL;
        fsdp_str_fini(&out);
        if (text)
            fputs(text, stdout);
        fsdp_free(text);
        return status == FSDP_OK && !text ? FSDP_ERR_NOMEM : status;
    }
    return fsdp_error(FSDP_ERR_INVALID, "'%s': there are scripts for bash, zsh and fish", shell);
}

int fsdp_cmd_completion(int argc, char **argv)
{
    char nothing;
    fsdp_options *options;
    int n, code = fsdp_cli_options(&spec, argc, argv, &nothing, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    const fsdp_status status = print_script(fsdp_options_positional(options, &n)[0]);
    code = FSDP_EXIT_OK;
    if (status != FSDP_OK)
        code = status == FSDP_ERR_INVALID ? fsdp_cli_misused(spec.program)
                                          : fsdp_cli_failed(spec.program);
    fsdp_options_destroy(options);
    return code;
}
