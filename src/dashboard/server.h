/* The HTTP server of the dashboard. It listens on the loopback interface only, answers GET and HEAD
 * only, and shows nothing without the token, which is the first component of every path:
 *
 *     /<token>/            the page
 *     /<token>/page.js, page.css
 *     /<token>/runs?since=N, /<token>/run?id=N, /<token>/log?id=N   JSON, see answer.h
 *
 * A request names no files: what it asks for are numbers of things that the board has found.
 * Another page in the same browser can neither guess the token nor reach the server under a name of
 * its own (DNS rebinding), since the Host header must be that of the loopback interface. */
#pragma once
#include "src/dashboard/board.h"

enum {
    FSDP_SERVER_TOKEN = 33, /* size of a token, with its NUL */
    FSDP_SERVER_PORT = 7070 /* where the search for a free port begins by default */
};

typedef struct fsdp_server fsdp_server;

/* Return false if this build has no server, because libmicrohttpd was not found. */
bool fsdp_server_is_available(void);
/* Write a new random token. FSDP_ERR_IO if the system has no random numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_server_make_token(char token[FSDP_SERVER_TOKEN]);
/* Start to serve `board`, which is borrowed, in a thread. If `port` is taken, one of the next ones
 * is used; 0: any free port. Returns FSDP_ERR_UNSUPPORTED without libmicrohttpd, and FSDP_ERR_IO if
 * no port is free. */
FSDP_MUST_CHECK fsdp_status fsdp_server_start(fsdp_board *board, const char *token, int port,
                                              fsdp_server **server);
int fsdp_server_port(const fsdp_server *server);
/* End the open connections and the thread. Accepts NULL. */
void fsdp_server_stop(fsdp_server *server);
