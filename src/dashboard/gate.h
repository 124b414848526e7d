/* Decides which requests the server answers. */
#pragma once
#include <stdbool.h>

/* Return true if `host`, the value of a Host header or NULL, names the loopback interface:
 * 127.0.0.1, localhost or [::1]. The port in `host` does not matter, because the browser may use a
 * tunnel (ssh -L) with another port. */
bool fsdp_gate_host(const char *host);
/* If the first component of `path` is `token`, return the rest of the path, which begins after the
 * slash; "" for the page itself. Otherwise return NULL. The time that this takes does not depend on
 * how much of the token is right. */
const char *fsdp_gate_path(const char *path, const char *token);
/* Parse a whole number, digits only, of at most 15 digits. Return false for anything else. */
bool fsdp_gate_number(const char *text, long long *value);
