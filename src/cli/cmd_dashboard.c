/* `fsdp dashboard`: serves a page about runs to a browser on this host. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/cli/common/cli.h"
#include "src/dashboard/dashboard.h"
#include "src/dashboard/server.h"

typedef struct dashboard_config {
    const char *host;
    int port;
    bool wait, address_only, until_stdin_closes;
} dashboard_config;

static const fsdp_option table[] = {
    {.name = "port",
     .aliases = "p",
     .type = FSDP_OPTION_INT,
     .offset = offsetof(dashboard_config, port),
     .value = "7070",
     .bounds = FSDP_BETWEEN(0, 65535),
     .metavar = "PORT",
     .help = "port of the page; if it is taken, the next free one; 0: any free port"},
    {.name = "host",
     .type = FSDP_OPTION_STRING,
     .offset = offsetof(dashboard_config, host),
     .value = "127.0.0.1",
     .metavar = "HOST",
     .help = "127.0.0.1 or localhost: the page is for this host only. From elsewhere, use "
             "ssh -L 7070:127.0.0.1:7070 HOST"},
    {.name = "wait",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(dashboard_config, wait),
     .help = "folders that do not exist yet may appear later"},
    {.name = "address-only",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(dashboard_config, address_only),
     .help = "print the address and nothing else, for scripts"},
    {.name = "until-stdin-closes",
     .type = FSDP_OPTION_BOOL,
     .offset = offsetof(dashboard_config, until_stdin_closes),
     .help = "end when standard input ends, for programs that start the dashboard"},
};

static const fsdp_options_spec spec = {
    .program = "fsdp dashboard",
    .usage = "DIR... [options]",
    .summary =
        "Serve a page that shows the runs in these folders, while they go on and afterwards: "
        "curves, ranks, memory, collectives, checkpoints and logs, and which run was best and "
        "why one was slow. Reads what 'fsdp train' writes with --metrics or --report-to json, "
        "event files of TensorBoard, checkpoints, and the files of 'fsdp launch --log-dir'. Writes "
        "nothing. Ctrl-C "
        "ends it.",
    .epilogue = "examples:\n  fsdp dashboard out\n  fsdp dashboard runs copied/from/another/host\n",
    .table = table,
    .count = FSDP_LENGTH(table),
    .positional = "DIR...",
    .min_positional = 1,
};

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

static fsdp_status check_host(const char *host)
{
    if (strcmp(host, "127.0.0.1") == 0 || strcmp(host, "localhost") == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--host %s: the page is served to this host only, at 127.0.0.1; to see it "
                      "from another host, run 'ssh -L 7070:127.0.0.1:PORT HOST' there and open "
                      "port 7070 of localhost",
                      host);
}

static fsdp_status print_address(void *context, const char *address)
{
    const dashboard_config *config = context;
    if (config->address_only)
        printf("%s\n", address);
    else
        printf("the dashboard is at %s (Ctrl-C ends it)\n", address);
    return fflush(stdout) == 0
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_IO, "standard output: cannot print the address");
}

int fsdp_cmd_dashboard(int argc, char **argv)
{
    dashboard_config config = {0};
    fsdp_options *options;
    int code = fsdp_cli_options(&spec, argc, argv, &config, &options);
    if (code != FSDP_CLI_RUN)
        return code;
    int count;
    char **folders = fsdp_options_positional(options, &count);
    const struct sigaction action = {.sa_handler = stop};
    const fsdp_dashboard_options dashboard = {.folders = (const char *const *)folders,
                                              .n_folders = (size_t)count,
                                              .may_come = config.wait,
                                              .port = config.port,
                                              .ready = print_address,
                                              .context = &config,
                                              .stop = &stopped,
                                              .until_closed =
                                                  config.until_stdin_closes ? STDIN_FILENO : -1};
    struct sigaction hangup;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL); /* under nohup, SIGHUP stays ignored */
    fsdp_status status = check_host(config.host);
    if (status != FSDP_OK) {
        code = fsdp_cli_misused(spec.program);
    } else {
        status = fsdp_dashboard_run_server(&dashboard);
        code = status == FSDP_OK ? FSDP_EXIT_OK : fsdp_cli_failed(spec.program);
    }
    fsdp_options_destroy(options);
    return code;
}
