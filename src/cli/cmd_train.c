/* `fsdp train`: runs one rank of a training run, which may be the only rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/cli/common/cli.h"
#include "src/cli/common/commands.h"
#include "src/cli/common/interrupt.h"
#include "src/cli/train_dashboard.h"
#include "src/comm/rendezvous.h"
#include "src/launch/launch.h"
#include "src/options/device_option.h"
#include "src/plan/memory_limit.h"
#include "src/tensor/cards.h"
#include "src/train/trainer.h"

/* Return true if `fsdp launch` restarted this run, after a failure or because a host has joined.
 * The run may then replace the files in its output folder, because the earlier attempt may have
 * written them. If another launcher restarted the run, return false, because such a launcher
 * restarts a run after any failure. In the first attempt, the run may have refused to start because
 * it found files in its output folder. These files may be the results of an unrelated run, so the
 * second attempt must not replace them. */
static bool is_restarted(void)
{
    const char *round = getenv(FSDP_LAUNCH_ROUND_ENV);
    return round && atoi(round) > 0 && getenv("FSDP_LAUNCHER_PID");
}

/* Return the number of ranks that --devices asks for, or 0 if this process is a rank already, or if
 * --devices does not ask for several ranks. */
static int ranks_to_start(const fsdp_train_config *config)
{
    char *end;
    const long n = config->devices ? strtol(config->devices, &end, 10) : 0;
    if (n < 2 || n > 65536 || *end || getenv(FSDP_RENDEZVOUS_ENV) || getenv("WORLD_SIZE"))
        return 0;
    return (int)n;
}

/* Run this command on `n` ranks: `fsdp launch -n N train ...`. `fsdp train` on one rank does not
 * read Accelerate's default configuration file, so `fsdp launch` must not read it here, either. */
static int start_ranks(int n, int argc, char **argv)
{
    enum {
        ADDED = 5
    };
    char number[16], launch[] = "launch", flag[] = "-n", file[] = "--config_file", none[] = "none";
    char *added[ADDED] = {launch, flag, number, file, none};
    char **words = fsdp_calloc((size_t)argc + ADDED + 1, sizeof *words);
    if (!words)
        return fsdp_cli_failed(fsdp_train_options()->program);
    snprintf(number, sizeof number, "%d", n);
    memcpy(words, added, sizeof added);
    memcpy(words + ADDED, argv, (size_t)argc * sizeof *words);
    printf("--devices %d: starting %d ranks, as 'fsdp launch -n %d train ...' does\n", n, n, n);
    fflush(stdout);
    setenv(FSDP_NOTES_SHOWN_ENV, "1", 1); /* this process has printed the notes of the options */
    const int code = fsdp_command_run(argc + ADDED, words);
    fsdp_free(words);
    return code;
}

int fsdp_cmd_train(int argc, char **argv)
{
    const fsdp_options_spec *spec = fsdp_train_options();
    fsdp_train_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    if (fsdp_cards_set_visible(config.gpu_ids.items, config.gpu_ids.count) != FSDP_OK ||
        fsdp_check_device_option(options, config.device, false) != FSDP_OK) {
        fsdp_options_destroy(options);
        return fsdp_cli_misused(spec->program);
    }
    const int ranks = ranks_to_start(&config);
    if (ranks) {
        fsdp_options_destroy(options);
        return start_ranks(ranks, argc, argv);
    }
    fsdp_train_dashboard dashboard;
    if (fsdp_cli_dashboard_prepare(&config, &dashboard) != FSDP_OK) {
        fsdp_options_destroy(options);
        return fsdp_cli_misused(spec->program);
    }
    bool saves = config.save_strategy != FSDP_SAVE_NO;
    fsdp_interrupt *interrupt =
        config.save_model || saves
            ? fsdp_cli_interrupt_begin(config.save_model ? config.output : NULL, saves)
            : NULL;
    config.interrupted = fsdp_cli_interrupted(interrupt);
    config.restarted = is_restarted();
    fsdp_group *group = NULL;
    fsdp_train_result result = {0};
    fsdp_status status = fsdp_cli_join(spec->program, &group);
    if (status == FSDP_OK)
        status = fsdp_memory_limit_check_job(&config, group);
    if (status == FSDP_OK)
        status = fsdp_train_run(&config, group, stdout, &result);
    if (status == FSDP_ERR_NOMEM && result.card_bytes)
        status = fsdp_memory_limit_advise(&config, fsdp_group_world_size(group),
                                          fsdp_group_local_world_size(group), result.card_bytes);
    fsdp_cli_dashboard_end(&dashboard);
    /* If a signal has come, fsdp_cli_interrupt_end() ends this process by this signal. Do not call
     * it if the run failed for another reason, for example because its last checkpoint could not be
     * written: the exit code must then report the failure. */
    if (status == FSDP_OK || result.interrupted)
        fsdp_cli_interrupt_end(interrupt);
    code = FSDP_EXIT_OK;
    if (status != FSDP_OK) {
        if (group)
            fsdp_group_abort(group, status);
        code = group ? fsdp_cli_failed(spec->program) : fsdp_cli_not_joined(spec->program);
        if (result.refused)
            code = FSDP_EXIT_USAGE;
    }
    fsdp_destroy_process_group(group);
    fsdp_options_destroy(options);
    return code;
}
