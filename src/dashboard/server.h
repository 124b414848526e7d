/* The HTTP server of the dashboard. It listens on the loopback interface only, answers GET and HEAD
 * only, and shows nothing without the token, which is the first component of every path:
 *
 *     /<token>/            the page
 *     /<token>/page.js, page.css, charts.js, findings.js, slow.js
 *     /<token>/runs?since=N, /<token>/run?id=N, /<token>/log?id=N   JSON, see answer.h
 *
 * A request contains no file names. It refers to runs and logs by the numbers that the board has
 * given them. Another page in the same browser cannot guess the token. It also cannot reach the
 * server by a host name that points to this host (DNS rebinding), because the Host header must name
 * the loopback interface. */
#pragma once
#include "src/dashboard/board.h"

enum {
    FSDP_SERVER_TOKEN = 33, /* size of a token, with its NUL */
    FSDP_SERVER_PORT = 7070 /* where the search for a free port begins by default */
};

typedef struct fsdp_server fsdp_server;

/* Return false if this build has no server, because libmicrohttpd was not found. */
bool fsdp_server_is_available(void);
/* Set `token` to a new random token. Return FSDP_ERR_IO if the system has no random numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_server_make_token(char token[FSDP_SERVER_TOKEN]);
/* Start a thread that serves `board`, which is borrowed. If `port` is in use, use one of the next
 * ports; 0: any free port. Return FSDP_ERR_UNSUPPORTED in a build without libmicrohttpd, and
 * FSDP_ERR_IO if no port is free. */
FSDP_MUST_CHECK fsdp_status fsdp_server_start(fsdp_board *board, const char *token, int port,
                                              fsdp_server **server);
int fsdp_server_port(const fsdp_server *server);
/* End the open connections and the thread. Accepts NULL. */
void fsdp_server_stop(fsdp_server *server);
