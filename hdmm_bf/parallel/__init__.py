"""More than one core or device: meshes, kernels whose matrices are spread by rows, searches in other processes."""
