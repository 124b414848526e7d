/* The subcommands of `fsdp config`. Each has the form of a command (commands.h). */
#pragma once

int fsdp_config_write(int argc, char **argv);   /* `fsdp config` and `fsdp config default` */
int fsdp_config_convert(int argc, char **argv); /* also `fsdp config to-fsdp2` */
int fsdp_config_explain(int argc, char **argv);
