/* See assets.h. The assembler puts the bytes of the page's files into the object file. The Makefile
 * compiles assets.c again when one of these files has changed. */
#include "src/dashboard/assets.h"

#include <string.h>

#include "src/base/assert.h"

#define EMBED(name, path)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".hidden fsdp_asset_" #name "\n"                                                       \
            ".hidden fsdp_asset_" #name "_end\n"                                                   \
            ".globl fsdp_asset_" #name "\n"                                                        \
            ".globl fsdp_asset_" #name "_end\n"                                                    \
            "fsdp_asset_" #name ":\n"                                                              \
            ".incbin \"" path "\"\n"                                                               \
            "fsdp_asset_" #name "_end:\n"                                                          \
            ".byte 0\n"                                                                            \
            ".text\n");                                                                            \
    extern const char fsdp_asset_##name[], fsdp_asset_##name##_end[]

EMBED(html, "src/dashboard/page.html");
EMBED(css, "src/dashboard/page.css");
EMBED(charts, "src/dashboard/charts.js");
EMBED(findings, "src/dashboard/findings.js");
EMBED(slow, "src/dashboard/slow.js");
EMBED(page, "src/dashboard/page.js");

const fsdp_asset *fsdp_asset_find(const char *path)
{
    static _Thread_local fsdp_asset found;
    const struct {
        const char *path, *type, *begin, *end;
    } all[] = {
        {"", "text/html; charset=utf-8", fsdp_asset_html, fsdp_asset_html_end},
        {"page.css", "text/css; charset=utf-8", fsdp_asset_css, fsdp_asset_css_end},
        {"charts.js", "text/javascript; charset=utf-8", fsdp_asset_charts, fsdp_asset_charts_end},
        {"findings.js", "text/javascript; charset=utf-8", fsdp_asset_findings,
         fsdp_asset_findings_end},
        {"slow.js", "text/javascript; charset=utf-8", fsdp_asset_slow, fsdp_asset_slow_end},
        {"page.js", "text/javascript; charset=utf-8", fsdp_asset_page, fsdp_asset_page_end},
    };
    for (size_t i = 0; i < FSDP_LENGTH(all); i++)
        if (strcmp(all[i].path, path) == 0) {
            found = (fsdp_asset){all[i].path, all[i].type, all[i].begin,
                                 (size_t)(all[i].end - all[i].begin)};
            return &found;
        }
    return NULL;
}
