/* See shell.h. */
#include "src/report/shell.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"

void fsdp_shell_quote(fsdp_str *out, const char *text, bool is_fish)
{
    fsdp_str_printf(out, "'");
    for (; *text; text++) {
        if (*text == '\'')
            fsdp_str_printf(out, is_fish ? "\\'" : "'\\''");
        else if (*text == '\\' && is_fish)
            fsdp_str_printf(out, "\\\\");
        else
            fsdp_str_append(out, text, 1);
    }
    fsdp_str_printf(out, "'");
}

void fsdp_shell_word(fsdp_str *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:@%+,=";
    const size_t n = strlen(text);
    if (n && strspn(text, plain) == n)
        fsdp_str_append(out, text, n);
    else
        fsdp_shell_quote(out, text, false);
}

/* Return true if the first program of the name `fsdp` in the folders of $PATH is `self`. */
static bool is_on_path(const char *self)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        char *found = fsdp_strdup_printf("%.*s/fsdp", n ? (int)n : 1, n ? path : ".");
        char *resolved = found && access(found, X_OK) == 0 ? realpath(found, NULL) : NULL;
        const bool is_first = resolved != NULL, is_same = is_first && strcmp(resolved, self) == 0;
        free(resolved); /* allocated by realpath, not by fsdp_calloc */
        fsdp_free(found);
        if (is_first)
            return is_same;
        path += n + (path[n] == ':');
    }
    return false;
}

void fsdp_shell_own_program(fsdp_str *out)
{
    char self[PATH_MAX], here[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    if (strcmp(fsdp_path_name(self), "fsdp") != 0 || is_on_path(self)) {
        fsdp_str_printf(out, "fsdp");
        return;
    }
    const size_t n = getcwd(here, sizeof here) ? strlen(here) : 0;
    const bool is_below = n > 1 && strncmp(self, here, n) == 0 && self[n] == '/';
    fsdp_shell_word(out, is_below ? self + n + 1 : self);
}
