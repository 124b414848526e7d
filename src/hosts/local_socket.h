/* The sockets between a launcher and the processes of its host (see local.h): unix sockets with an
 * abstract name, so that no file is left behind. The length of each message (4 bytes) comes before
 * the message. */
#pragma once
#include <sys/types.h>

#include "src/hosts/message.h"

enum {
    FSDP_LOCAL_NAME = 64 /* size of the name of a socket */
};

/* Listen at a random name. Set *fd to the socket, and write the name to `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_listen(int *fd, char name[FSDP_LOCAL_NAME]);
/* Accept the next connection of a process of the same user. Return false if there is none. */
bool fsdp_local_socket_accept(int listener, int *fd, pid_t *pid);
/* Set *message to the next message that has arrived, and *taken to true. The caller frees the
 * message. If no complete message has arrived, do not wait for one, but set *taken to false. *in
 * keeps the bytes of an incomplete message. Set *ended to true at the end of the connection. */
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_take(int fd, fsdp_str *in,
                                                   fsdp_hosts_message *message, bool *taken,
                                                   bool *ended);
/* Send an encoded plan together with stdin, stdout and stderr of this process. */
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_send_plan(int fd, const char *bytes, size_t size);

/* --- for the ranks and agents, which connect to the launcher --- */
/* Connect to the launcher's socket, whose name is in the environment. */
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_connect(int *fd);
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_send(int fd, const fsdp_hosts_message *message);
/* Receive a plan, and make the descriptors that come with it stdin, stdout and stderr. The caller
 * frees *bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_local_socket_receive_plan(int fd, char **bytes, size_t *size);
