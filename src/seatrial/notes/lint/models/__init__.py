"""What is known of models and devices: shapes and parameters, the FLOPs that TFLOPs were worked out with, experts, peaks."""
