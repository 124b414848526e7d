/* See shell.h. */
#include "src/report/shell.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/program.h"

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

/* Return true if `self` is the program that a shell finds by the name fsdp. */
static bool is_on_path(const char *self)
{
    char *found = fsdp_program_find("fsdp");
    char *resolved = found ? realpath(found, NULL) : NULL;
    const bool is_same = resolved && strcmp(resolved, self) == 0;
    free(resolved); /* allocated by realpath, not by fsdp_calloc */
    fsdp_free(found);
    return is_same;
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
    const char *word = is_below ? self + n + 1 : self;
    if (!strchr(word, '/')) /* a shell looks for a word without a slash in $PATH only */
        fsdp_str_printf(out, "./");
    fsdp_shell_word(out, word);
}
