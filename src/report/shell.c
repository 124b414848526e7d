/* See shell.h. */
#include "src/report/shell.h"

#include <string.h>

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
