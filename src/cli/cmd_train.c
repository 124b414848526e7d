/* `fsdp train`: one rank of a training run, or all of it when there is one rank. */
#include <stdio.h>

#include <fsdp/comm.h>

#include "src/cli/cli.h"
#include "src/cli/interrupt.h"
#include "src/train/trainer.h"

int fsdp_cmd_train(int argc, char **argv)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    fsdp_train_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    config.interrupted = fsdp_cli_finish_save_on_signal(config.save_model ? config.output : NULL);
    fsdp_group *group = NULL;
    fsdp_train_result result;
    fsdp_status status = fsdp_init_process_group(NULL, &group);
    if (status == FSDP_OK)
        status = fsdp_train_run(&config, group, stdout, &result);
    fsdp_cli_await_signal(config.interrupted);
    code = FSDP_EXIT_OK;
    if (status != FSDP_OK) {
        if (group)
            fsdp_group_abort(group, status);
        code = fsdp_cli_failed(spec->program);
    }
    fsdp_destroy_process_group(group);
    fsdp_options_destroy(options);
    return code;
}
