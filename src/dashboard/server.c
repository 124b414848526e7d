/* See server.h. libmicrohttpd runs one thread, which waits for data on all connections and answers
 * one request at a time. A slow client only occupies a connection. The number of connections is
 * limited, and a connection that is idle for too long is closed. */
#include "src/dashboard/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/dashboard/answer.h"
#include "src/dashboard/assets.h"
#include "src/dashboard/gate.h"

enum {
    MAX_CONNECTIONS = 48,
    IDLE_SECONDS = 20,       /* a connection that is idle for this long is closed */
    REQUEST_BYTES = 1 << 14, /* memory of a connection, which limits the length of a request */
    PORTS_TO_TRY = 32,
    BACKLOG = 16
};

struct fsdp_server {
    fsdp_board *board;
    char token[FSDP_SERVER_TOKEN];
    int port;
    struct MHD_Daemon *daemon;
};

bool fsdp_server_is_available(void)
{
    return true;
}

/* --- responses --- */

static void add_headers(struct MHD_Response *response, const char *type)
{
    static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(headers); i++)
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    (void)MHD_add_response_header(response, "Content-Type", type);
}

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned code,
                                     const char *type, struct MHD_Response *response)
{
    if (!response)
        return MHD_NO; /* out of memory: the connection is closed */
    add_headers(response, type);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, "Allow", "GET, HEAD");
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* Send `data` [bytes], which must stay valid until the server ends. */
static enum MHD_Result send_static(struct MHD_Connection *connection, unsigned code,
                                   const char *type, const char *data, size_t bytes)
{
    char *unchanged;
    memcpy(&unchanged, &data, sizeof unchanged); /* the library takes a pointer to non-const */
    return send_response(connection, code, type,
                         MHD_create_response_from_buffer(bytes, unchanged, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result send_error(struct MHD_Connection *connection, unsigned code,
                                  const char *text)
{
    return send_static(connection, code, "text/plain; charset=utf-8", text, strlen(text));
}

static enum MHD_Result send_json(struct MHD_Connection *connection, fsdp_str *answer)
{
    const size_t bytes = answer->len;
    char *text = fsdp_str_take(answer);
    if (!text)
        return send_error(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(bytes, text, fsdp_free);
    if (!response)
        fsdp_free(text);
    return send_response(connection, MHD_HTTP_OK, "application/json; charset=utf-8", response);
}

/* --- requests --- */

static bool number_of(struct MHD_Connection *connection, const char *key, long long *value)
{
    return fsdp_gate_number(MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key),
                            value);
}

static enum MHD_Result answer_data(const fsdp_server *s, struct MHD_Connection *connection,
                                   const char *path)
{
    fsdp_str answer = {0};
    long long number = 0;
    bool found = false;
    if (strcmp(path, "runs") == 0) {
        (void)number_of(connection, "since", &number);
        fsdp_answer_runs(s->board, number, &answer);
        found = true;
    } else if (strcmp(path, "run") == 0) {
        found = number_of(connection, "id", &number) && fsdp_answer_run(s->board, number, &answer);
    } else if (strcmp(path, "log") == 0) {
        found = number_of(connection, "id", &number) && fsdp_answer_log(s->board, number, &answer);
    }
    if (found)
        return send_json(connection, &answer);
    fsdp_str_fini(&answer);
    return send_error(connection, MHD_HTTP_NOT_FOUND, "not found\n");
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    const fsdp_server *s = context;
    (void)version;
    (void)upload;
    (void)upload_size;
    if (!fsdp_gate_host(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return send_error(connection, MHD_HTTP_FORBIDDEN,
                          "this server answers to 127.0.0.1 and localhost only\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return send_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    const char *path = fsdp_gate_path(url, s->token);
    if (!path)
        return send_error(connection, MHD_HTTP_FORBIDDEN,
                          "the address needs the token in it: copy all of what 'fsdp dashboard' or "
                          "--dashboard printed, with the slash at its end\n");
    /* libmicrohttpd calls this function twice for a request. A response in the first call, before a
     * body has been read, closes the connection. So the first call answers only the requests that
     * it refuses. */
    if (!*state) {
        *state = connection;
        return MHD_YES;
    }
    const fsdp_asset *asset = fsdp_asset_find(path);
    if (asset)
        return send_static(connection, MHD_HTTP_OK, asset->type, asset->data, asset->bytes);
    return answer_data(s, connection, path);
}

/* --- the socket --- */

/* Listen on port *port of the loopback interface (0: any free port). Set *port to the port in use,
 * and return the socket. On failure, return -1 and set errno. */
static int listen_on(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)*port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

/* Listen on port `wanted` or, if it is in use, on one of the next ports (0: any free port). Set *fd
 * to the socket, and *port to its port. */
static fsdp_status open_socket(int wanted, int *fd, int *port)
{
    for (int i = 0; i < PORTS_TO_TRY; i++) {
        *port = wanted ? wanted + i : 0;
        if (*port > 65535)
            break;
        *fd = listen_on(port);
        if (*fd >= 0)
            return FSDP_OK;
        if (errno != EADDRINUSE)
            break;
    }
    return fsdp_error(FSDP_ERR_IO, "port %d of 127.0.0.1: %s; --port 0 takes any free port", wanted,
                      strerror(errno));
}

/* --- the server --- */

fsdp_status fsdp_server_start(fsdp_board *board, const char *token, int port, fsdp_server **server)
{
    int fd = -1;
    fsdp_server *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->board = board;
    memcpy(s->token, token, FSDP_SERVER_TOKEN);
    const fsdp_status status = open_socket(port, &fd, &s->port);
    if (status != FSDP_OK) {
        fsdp_free(s);
        return status;
    }
    s->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, answer, s,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_END);
    if (!s->daemon) {
        close(fd);
        fsdp_free(s);
        return fsdp_error(FSDP_ERR_IO, "libmicrohttpd cannot start its thread");
    }
    *server = s;
    return FSDP_OK;
}

int fsdp_server_port(const fsdp_server *server)
{
    return server->port;
}

void fsdp_server_stop(fsdp_server *server)
{
    if (!server)
        return;
    MHD_stop_daemon(server->daemon);
    fsdp_free(server);
}
