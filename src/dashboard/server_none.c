/* Replaces server.c in a build without libmicrohttpd. */
#include "src/dashboard/server.h"

bool fsdp_server_is_available(void)
{
    return false;
}

fsdp_status fsdp_server_start(fsdp_board *board, const char *token, int port, fsdp_server **server)
{
    (void)board;
    (void)token;
    (void)port;
    (void)server;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "this build has no dashboard, since libmicrohttpd was not found: 'make deps' "
                      "installs it, then 'make' builds with it");
}

int fsdp_server_port(const fsdp_server *server)
{
    (void)server;
    return 0;
}

void fsdp_server_stop(fsdp_server *server)
{
    (void)server;
}
