/* See dashboard.h. The calling thread is the reader: Note [Threads of the dashboard] in board.h. */
#include "src/dashboard/dashboard.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "src/dashboard/board.h"
#include "src/dashboard/server.h"

/* Sleep for `ms` milliseconds. Return true at once if the other end of the pipe `fd` is closed. */
static bool sleep_or_closed(int fd, int ms)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char byte;
    return poll(&poller, 1, ms) > 0 && read(fd, &byte, 1) <= 0;
}

static fsdp_status read_until_stopped(fsdp_board *board, const fsdp_dashboard_options *o)
{
    fsdp_status status = FSDP_OK;
    bool closed = false;
    while (status == FSDP_OK && !closed && !(o->stop && *o->stop)) {
        int pause_ms = 0;
        status = fsdp_board_turn(board, &pause_ms);
        if (status == FSDP_OK)
            closed = sleep_or_closed(o->until_closed, pause_ms);
    }
    return status;
}

static fsdp_status serve(fsdp_board *board, const fsdp_dashboard_options *o)
{
    char token[FSDP_SERVER_TOKEN], address[96];
    fsdp_server *server;
    FSDP_TRY(fsdp_server_make_token(token));
    FSDP_TRY(fsdp_server_start(board, token, o->port, &server));
    snprintf(address, sizeof address, "http://127.0.0.1:%d/%s/", fsdp_server_port(server), token);
    fsdp_status status = o->ready ? o->ready(o->context, address) : FSDP_OK;
    if (status == FSDP_OK)
        status = read_until_stopped(board, o);
    fsdp_server_stop(server);
    return status;
}

fsdp_status fsdp_dashboard_run_server(const fsdp_dashboard_options *options)
{
    fsdp_board *board;
    FSDP_TRY(fsdp_board_create(options->folders, options->n_folders, options->may_come, &board));
    const fsdp_status status = serve(board, options);
    fsdp_board_destroy(board);
    return status;
}
