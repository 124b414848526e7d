/**
 * @file
 * Checkpoints: weights in files (<fsdp/hf.h>), and modules that are loaded from them and saved
 * (<fsdp/pretrained.h>).
 */
#pragma once
#include <fsdp/hf.h>
#include <fsdp/pretrained.h>
