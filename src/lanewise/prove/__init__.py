"""Every kernel, compiled for every target and executed on an emulator: what holds without the hardware."""
